import { fileURLToPath } from "node:url";
import { run } from "@atoll/host";
import { expect, test } from "vitest";

test("the helpers work in node:test", async () => {
  const program = fileURLToPath(new URL("./with-node-test.mts", import.meta.url));
  const { exitCode, stdout, stderr } = await run(
    process.execPath,
    ["--conditions=source", "--import", "tsx", "--test", program],
    { signal: new AbortController().signal, timeoutMs: 120_000, env: { NODE_ENV: "test" }, cwd: process.cwd() },
  );
  expect(stdout + stderr).toMatch(/^# pass 1$/m);
  expect(exitCode).toBe(0);
});
