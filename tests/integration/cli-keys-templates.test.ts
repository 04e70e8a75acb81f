import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll, type CommandOutcome } from "../support/atoll-command.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let here: string;

beforeAll(async () => {
  here = await mkdtemp(join(tmpdir(), "atoll-cli-template-"));
  server = await startTestServer();
});
afterAll(async () => {
  await server.dispose();
  await rm(here, { recursive: true, force: true });
});

const atoll = async (...words: string[]) => runAtoll(server, words);

function json({ exitCode, stdout, stderr }: CommandOutcome) {
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return JSON.parse(stdout);
}

/** Creates a root filesystem with one static program. */
async function rootFilesystem(): Promise<string> {
  const root = join(here, "root");
  await mkdir(join(root, "bin"), { recursive: true });
  await writeFile(join(here, "hello.c"), '#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n');
  execFileSync("env", ["cc", "-static", "-o", join(root, "bin", "hello"), join(here, "hello.c")]);
  const archive = join(here, "root.tar");
  execFileSync("tar", ["-C", root, "-cf", archive, "."]);
  return archive;
}

describe("a template", () => {
  test("is imported from a file, used by sandboxes, listed, and removed when no sandbox uses it", async () => {
    const archive = await rootFilesystem();
    expect(await atoll("template", "import", "tiny", archive)).toEqual({ exitCode: 0, stdout: "tiny\n", stderr: "" });
    expect((await atoll("template", "ls")).stdout).toMatch(/^tiny\t\S+\timported$/m);
    const again = await atoll("template", "import", "tiny", archive);
    expect(again).toMatchObject({ exitCode: 1, stdout: "" });

    const id = (await atoll("create", "--driver", "local", "--template", "tiny")).stdout.trim();
    expect((await atoll("exec", id, "--", "/bin/hello")).stdout).toBe("hello\n");
    expect(await atoll("template", "rm", "tiny")).toMatchObject({ exitCode: 1, stdout: "" });
    await atoll("kill", id);
    expect(await atoll("template", "rm", "tiny")).toEqual({ exitCode: 0, stdout: "tiny\n", stderr: "" });
    expect(await atoll("create", "--driver", "local", "--template", "tiny")).toMatchObject({ exitCode: 1, stdout: "" });
  });

  test("is imported from a pipe, also compressed", async () => {
    const archive = execFileSync("gzip", ["-c", await rootFilesystem()]);
    const imported = await runAtoll(server, ["template", "import", "--json", "piped", "-"], { stdin: archive });
    expect(json(imported)).toMatchObject({ name: "piped" });
    expect(json(await atoll("template", "rm", "--json", "piped"))).toEqual({ removed: "piped" });
  });

  test("is not imported from a file that is no archive, and the error gives the reason", async () => {
    const garbage = join(here, "garbage");
    await writeFile(garbage, Buffer.alloc(3_000_000, "no archive"));
    const refused = await atoll("template", "import", "bad", garbage);
    expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
    expect(refused.stderr).toContain("hint: It has to be a tar archive of a root filesystem");
    expect((await atoll("template", "import", "bad", join(here, "missing.tar"))).exitCode).toBe(2);
    expect((await atoll("template", "import", "bad", here)).exitCode).toBe(2);
    expect((await atoll("template", "ls")).stdout).not.toContain("bad");
  });
});

describe("a key", () => {
  const as =
    (key: string) =>
    async (...words: string[]) =>
      runAtoll({ url: server.url, key }, words);

  test("may do only what its verbs, template and number of sandboxes allow", async () => {
    const verbs = ["--verb", "sandboxes", "--verb", "read", "--verb", "commands"];
    const ceilings = ["--driver", "local", "--max-sandboxes", "1", "--max-memory", "256m", "--egress", "10.0.0.0/8"];
    const limits = ["--template", "host", "--rate", "6000", ...ceilings];
    const created = json(await atoll("key", "create", "--json", "narrow", ...verbs, ...limits));
    expect(created.key).toMatchObject({
      name: "narrow",
      verbs: ["sandboxes", "read", "commands"],
      templates: ["host"],
      policy: {
        drivers: ["local"],
        egress: { allow: ["10.0.0.0/8"], deny: [] },
        limits: { sandboxes: 1, memoryBytes: 256 * 1024 ** 2 },
      },
      requestsPerMinute: 6000,
      ownOnly: true,
    });
    expect((await atoll("key", "ls")).stdout).toMatch(/\tlocal\t10\.0\.0\.0\/8\tmemory=256 MiB,sandboxes=1$/m);
    const narrow = as(created.secret);
    const foreign = (await atoll("create", "--driver", "local")).stdout.trim();
    const own = (await narrow("create", "--driver", "local")).stdout.trim();
    expect((await narrow("exec", own, "--", "true")).exitCode).toBe(0);

    const tooMany = await narrow("create", "--driver", "local", "--json");
    expect(JSON.parse(tooMany.stderr).error.code).toBe("limit_reached");
    expect((await narrow("ls", "-q")).stdout).toBe(`${own}\n`);
    expect((await narrow("exec", foreign, "--", "true")).exitCode).toBe(125);
    const noFiles = await narrow("cp", "--json", `${own}:/etc/passwd`, join(here, "passwd"));
    expect(JSON.parse(noFiles.stderr).error.code).toBe("permission_denied");
    await expect(readFile(join(here, "passwd"))).rejects.toThrow("ENOENT");
    await narrow("kill", own);
    const other = await narrow("create", "--driver", "local", "--template", "other", "--json");
    expect(JSON.parse(other.stderr).error.code).toBe("permission_denied");
    await atoll("kill", foreign);
  });

  test("for every sandbox sees those of other keys", async () => {
    const id = (await atoll("create", "--driver", "local")).stdout.trim();
    const secret = (await atoll("key", "create", "watcher", "--verb", "read", "--every-sandbox")).stdout.trim();
    expect((await as(secret)("ls", "-q")).stdout).toBe(`${id}\n`);
    expect((await as(secret)("kill", id)).exitCode).toBe(1);
    await atoll("kill", id);
  });

  test("with a wrong verb or number is refused with a suggestion", async () => {
    const outcome = await atoll("key", "create", "odd", "--verb", "raed");
    expect(outcome.exitCode).toBe(2);
    expect(outcome.stderr).toContain("Allowed choices are admin, sandboxes, read");
    expect((await atoll("key", "create", "odd", "--max-sandboxes", "-1")).exitCode).toBe(2);
    expect((await atoll("key", "ls")).stdout).not.toContain("odd");
  });
});
