import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TemplateName } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TemplateLibrary } from "../../packages/engine/src/templates/template-library.ts";
import type { Template } from "../../packages/engine/src/templates/template.ts";

let base: string;
let template: Template;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "atoll-host-template-"));
  template = await new TemplateLibrary(join(base, "data")).get(TemplateName.parse("host"));
});
afterAll(() => rm(base, { recursive: true, force: true }));

/**
 * Runs a script in the template with a writable layer on top, in a mount namespace that ends with the script.
 */
async function inTemplate(script: string): Promise<string> {
  const root = join(base, "root");
  const mounts = await Promise.all(
    template.trees.map(async ({ at, lower }, index) => {
      const [upper, work] = [join(base, `upper${index}`), join(base, `work${index}`)];
      for (const directory of [root, upper, work]) await mkdir(directory, { recursive: true });
      return `mount -t overlay overlay -o lowerdir=${lower.join(":")},upperdir=${upper},workdir=${work} ${root}${at}`;
    }),
  );
  const commands = [
    "mount --make-rprivate /",
    ...mounts,
    `mount -t proc proc ${root}/proc`,
    `mount --rbind /dev ${root}/dev`,
    `exec chroot ${root} /bin/bash -lc "$1"`,
  ];
  const inNamespace = 'exec unshare -m bash -c "$0" bash "$1"';
  const { stdout, stderr, status } = spawnSync("sh", ["-c", inNamespace, commands.join(" && "), script]);
  expect(stderr.toString()).toBe("");
  expect(status).toBe(0);
  return stdout.toString().trim();
}

test("the programs of the host run in the default template", async () => {
  expect(await inTemplate("python3 -c 'import ssl, json; print(1 + 1)'; perl -e 'print 3'")).toBe("2\n3");
});

test("the default user exists, has a home, and root can become that user", async () => {
  expect(await inTemplate("stat -c '%U %a' ~user; su - user -c 'touch x && id -un && pwd'")).toBe(
    "user 755\nuser\n/home/user",
  );
});

test("no private file of the host is visible", async () => {
  const paths = "/root /home /opt /srv /mnt /var/lib /var/log /var/cache";
  expect(await inTemplate(`find ${paths} -mindepth 1 ! -path '/home/user*' ! -name '.bashrc' ! -name '.profile'`)).toBe(
    "",
  );
  expect(
    await inTemplate("ls -d /etc/ssl/private /usr/local/etc /etc/npmrc /etc/machine-id /etc/ssh 2>/dev/null || true"),
  ).toBe("");
  expect(await inTemplate("cut -d: -f2 /etc/shadow | sort -u")).toBe("*");
});

test("no file of /usr that is private on the host is visible", async () => {
  const isPrivate = "\\( ! -type l ! -perm -o=r -o -type d ! -perm -o=x \\)";
  expect(await inTemplate(`find /usr -xdev ${isPrivate}`)).toBe("");
});

test("writes below /usr stay in the sandbox's layer", async () => {
  expect(await inTemplate("mkdir /usr/local/etc && echo mine > /usr/local/etc/conf && cat /usr/local/etc/conf")).toBe(
    "mine",
  );
});
