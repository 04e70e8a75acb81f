import { chmod, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ServerSecret } from "../../src/keys/server-secret.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-secret-"));
});
afterEach(() => rm(dir, { recursive: true }));

test("the secret is created once, readable by its owner only, and stays the same", async () => {
  const many = await Promise.all(Array.from({ length: 8 }, () => ServerSecret.load(dir)));
  const keys = [...many, await ServerSecret.load(dir)].map((secret) => secret.keyFor("port tokens").toString("hex"));
  expect(new Set(keys).size).toBe(1);
  expect(((await stat(join(dir, "secret"))).mode & 0o777).toString(8)).toBe("600");
  expect(await readdir(dir)).toEqual(["secret"]);
});

test("each purpose has a key of its own", async () => {
  const secret = await ServerSecret.load(dir);
  expect(secret.keyFor("port tokens").equals(secret.keyFor("file URLs"))).toBe(false);
});

test("a secret that others can read, or that was cut, is refused", async () => {
  await ServerSecret.load(dir);
  await chmod(join(dir, "secret"), 0o644);
  await expect(ServerSecret.load(dir)).rejects.toMatchObject({
    message: expect.stringContaining("users other than its owner"),
  });
  await chmod(join(dir, "secret"), 0o600);
  await writeFile(join(dir, "secret"), "short");
  await expect(ServerSecret.load(dir)).rejects.toMatchObject({ message: expect.stringContaining("5 bytes") });
});
