import { startHostProcess } from "@atoll/host";
import { afterAll, beforeAll, expect, test } from "vitest";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { finish } from "../support/test-engine.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;

beforeAll(async () => {
  server = await startTestServer();
});
afterAll(async () => {
  await server?.dispose();
});

const start = `
  import { Sandbox } from "@atoll/sdk";
  const sandbox = await Sandbox.create({ driver: "local" });
  const options = { background: true, stdin: true };
  const handle = await sandbox.commands.run("echo ready; exec sleep 1000", options);
`;

/** Programs that have nothing left to do while one of their commands runs on. */
test.for([
  ["has sent input", `await handle.sendStdin("one line");`],
  ["has sent all of the input", `await handle.sendStdin("one line"); await handle.closeStdin();`],
  [
    "has stopped waiting",
    `const stop = new AbortController();
     const waiting = handle.wait({ signal: stop.signal });
     for await (const event of handle) break;
     stop.abort(new Error("enough"));
     await waiting.catch(() => undefined);`,
  ],
  [
    "was about to wait with an aborted signal",
    `await handle.wait({ signal: AbortSignal.abort() }).catch(() => undefined);`,
  ],
  [
    "has closed its handle",
    `const seen = new Promise((resolve) => {
       sandbox.commands.connect(handle.id, { onStdout: resolve }).then((again) => seen.then(() => again.close()));
     });
     await seen;`,
  ],
  ["only looked at events", `for await (const event of handle) break; await sandbox.getInfo();`],
] as const)("a program ends after it %s", async ([, rest]) => {
  const program = `${start}${rest}\nconsole.log(sandbox.id);`;
  const words = ["--conditions=source", "--import", "tsx", "--input-type=module", "--eval", program];
  const child = await startHostProcess(process.execPath, words, {
    // The command itself would keep its output open for longer.
    signal: AbortSignal.timeout(100_000),
    cwd: `${repositoryRoot}/packages/cli`,
    env: { ATOLL_API_URL: server.url, ATOLL_API_KEY: server.key, PATH: process.env["PATH"] ?? "" },
  });
  const { exitCode, stdout, stderr } = await finish(child);
  expect({ exitCode, stderr: stderr.toString() }).toEqual({ exitCode: 0, stderr: "" });
  expect(stdout.toString()).toMatch(/^\w{20}\n$/);
});
