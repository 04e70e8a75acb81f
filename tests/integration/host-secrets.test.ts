import { randomBytes } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeDrivers } from "../support/drivers.ts";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

/** Directories with a host's secrets. The test puts a marked file into each of them for its duration. */
const secretPlaces = ["/root", "/home", "/etc", "/var/lib", "/opt", "/srv", "/run", "/usr/local/etc"];

describeDrivers("the host's secrets under %s", (driver) => {
  const mark = `atoll-secret-${randomBytes(12).toString("hex")}`;
  const planted = secretPlaces.map((place) => join(place, mark));
  let host: TestEngine;
  let sandbox: Sandbox;

  beforeAll(async () => {
    for (const path of planted) {
      await mkdir(join(path, ".."), { recursive: true });
      await writeFile(path, mark, { mode: 0o600 });
    }
    host = await openTestEngine();
    sandbox = await host.engine.create({ driver });
  });
  afterAll(async () => {
    await host.dispose();
    await Promise.all(planted.map((path) => rm(path, { force: true })));
  });

  test("are not in the sandbox, not even for root", async () => {
    const { output } = await runIn(
      sandbox,
      `for f in ${planted.join(" ")}; do cat $f 2>/dev/null; done; ls -d ${planted.join(" ")}`,
      { user: "root" },
    );
    expect(output).not.toContain(`${mark}\n${mark}`);
    expect(output.match(/No such file/g)).toHaveLength(planted.length);
  });

  test("are not found by a search of the whole root", async () => {
    const { output } = await runIn(
      sandbox,
      `find / -xdev -name '${mark}' -not -path '/proc/*' 2>/dev/null; echo searched`,
      { user: "root" },
    );
    expect(output).toBe("searched\n");
  });

  test("do not include accounts, passwords and the host name", async () => {
    const shadow = await readFile("/etc/shadow", "utf8");
    const inside = await runIn(sandbox, "cat /etc/shadow; cat /etc/passwd; hostname; cat /etc/hostname", {
      user: "root",
    });
    for (const line of shadow.split("\n").filter((text) => /:\$/.test(text))) expect(inside.output).not.toContain(line);
    expect(inside.output).toContain(":1000:1000:");
    expect(inside.output).not.toContain(hostname());
  });

  test("stay closed to the user, who is not root, cannot become root, and reads no file of root", async () => {
    const { output } = await runIn(sandbox, "id -u; cat /etc/shadow; ls /root; sudo -n true; su -c true </dev/null");
    expect(output).toMatch(/^1000\n/);
    expect(output).not.toMatch(/root:[*!$]/);
    expect(output).toMatch(/denied/i);
  });

  test("do not include the data directory or the host's processes", async () => {
    const { output } = await runIn(
      sandbox,
      `ls ${host.dataDir}; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ` +
        "cat /proc/self/environ | tr '\\0' '\\n'; cat /proc/mounts",
      { user: "root" },
    );
    expect(output).toMatch(/No such file/);
    expect(output).not.toContain("vitest");
    expect(output).not.toMatch(/ATOLL_TEST_ROOT|npm_/);
  });
});
