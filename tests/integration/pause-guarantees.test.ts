// @module-tag gvisor
/**
 * Users of such services complain most often that something was lost although a pause had succeeded. Each test here
 * covers one of these complaints, through the server and the SDK. Other tests cover the rest: changes over twenty
 * pauses (pause-layers); bytes of output, input, terminals, connections and the clock (pause-streams); a server that
 * dies or is replaced (pause-crash, server-pause); damaged parts and failed resumes, which leave a sandbox paused
 * (pause-parts, pause-failures); a sandbox that moves to another machine (transfer).
 */
import type { SandboxInfo } from "@atoll/protocol";
import { Atoll, Sandbox, type CreateOptions } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let client: Atoll;
beforeAll(async () => {
  server = await startTestServer();
  client = new Atoll({ baseUrl: server.url, apiKey: server.key });
});
afterAll(async () => {
  client?.close();
  await server?.dispose();
});

const create = (options: CreateOptions = {}): Promise<Sandbox> =>
  Sandbox.create({ client, driver: "gvisor", ...options });

/** Lists everything below the home directory: kinds, modes, owners, link targets, times and contents. */
async function homeOf(sandbox: Sandbox): Promise<string> {
  const list = "find . -printf '%p %y %m %u %l %s %T@\\n' | sort";
  const script = `cd /home/user; ${list}; find . -type f -print0 | sort -z | xargs -0 sha256sum`;
  return (await sandbox.commands.run(script, { check: true })).stdout;
}

/** Returns the settings of a sandbox, without the info that changes with time. */
function settingsOf({ labels, timeouts, limits, template, driver, createdAtMs }: SandboxInfo): object {
  return { labels, timeouts, limits, template, driver, createdAtMs };
}

const counter = `
import http.server
count = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        self.send_response(200); self.end_headers(); self.wfile.write(str(count).encode())
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`;

test("files are complete after every pause, whether by a request or by a timeout", async () => {
  await using sandbox = await create();
  // The sandbox's kernel has its own times for recent writes, some microseconds off those on disk.
  const settle = "find . -exec touch -h -d 2001-02-03T04:05:06.789 {} +";
  const make = [
    "mkdir -p deep/er .hidden; ln -s deep/er link; mkfifo pipe; echo one >deep/er/file; ln deep/er/file hard",
    "head -c 20000000 /dev/urandom >big; chmod 640 big; chmod 1777 .hidden; touch 'two  spaces' $'new\\nline'",
    settle,
  ];
  await sandbox.commands.run(make.join("; "), { check: true });
  let before = await homeOf(sandbox);
  for (const round of [1, 2, 3]) {
    if (round < 3) await sandbox.pause();
    else {
      await sandbox.update({ timeouts: { idleMs: 1_000, onTimeout: "pause" } });
      // Reading the info may count as use, so the interval is longer than the timeout.
      await expect.poll(async () => (await sandbox.getInfo()).state, { interval: 3_000 }).toBe("paused");
      await sandbox.setTimeout(600_000);
    }
    expect(await homeOf(sandbox)).toBe(before);
    const change = `echo ${round} >new${round}; echo ${round} >>hard; rm -rf .hidden; mkdir .hidden; ${settle}`;
    await sandbox.commands.run(change, { check: true });
    before = await homeOf(sandbox);
  }
  expect(await sandbox.files.read("hard")).toBe("one\n1\n2\n3\n");
  expect(await sandbox.checkpoints()).toHaveLength(3);
});

test("settings are kept: labels, timeouts, limits, environment, egress", async () => {
  await using sandbox = await create({
    labels: { job: "seven" },
    env: { GREETING: "hello" },
    limits: { memoryBytes: 512 * 1024 * 1024 },
    timeouts: { idleMs: 3_600_000, onTimeout: "pause" },
    egress: { allow: ["example.org:443"] },
  });
  const [before, egress] = [settingsOf(await sandbox.getInfo()), await sandbox.getEgress()];
  for (const _ of [1, 2]) {
    await sandbox.pause();
    expect(settingsOf(await sandbox.getInfo())).toEqual(before);
    await sandbox.resume();
    expect(settingsOf(await sandbox.getInfo())).toEqual(before);
    expect(await sandbox.getEgress()).toEqual(egress);
    expect((await sandbox.commands.run("echo $GREETING; nproc >/dev/null")).stdout).toBe("hello\n");
  }
});

test("a server in a paused sandbox answers the next request from its memory", async () => {
  await using sandbox = await create();
  const serving = await sandbox.commands.run(["python3", "-c", counter], { background: true });
  await sandbox.waitForPort(8000, { timeoutMs: 60_000 });
  const { url } = await sandbox.getUrl(8000, { public: true });
  const ask = async (): Promise<string> => (await fetch(url)).text();
  const first = Number(await ask());
  await sandbox.pause();
  expect(Number(await ask())).toBe(first + 1);
  await sandbox.pause();
  expect(Number(await ask())).toBe(first + 2);
  expect(await sandbox.commands.get(serving.id)).toMatchObject({ state: "running" });
});

test("the output of commands is kept during and after a pause, and reading it does not wake the sandbox", async () => {
  await using sandbox = await create();
  const ended = await sandbox.commands.run("seq 1 5000; echo wrong >&2; exit 3");
  const running = await sandbox.commands.run("echo begun; read line; echo $line", { background: true, stdin: true });
  await expect.poll(async () => (await sandbox.commands.get(running.id)).stdoutBytes).toBe(6);
  await sandbox.pause();
  const again = await (await sandbox.commands.connect(ended.id)).wait();
  expect(again).toMatchObject({ exitCode: 3, stdout: ended.stdout, stderr: "wrong\n" });
  expect((await sandbox.getInfo()).state).toBe("paused");
  const following = (await sandbox.commands.connect(running.id)).wait();
  await running.sendStdin("on\n");
  expect(await following).toMatchObject({ exitCode: 0, stdout: "begun\non\n" });
});

test("many requests at once to a paused sandbox are all answered, and it wakes once", async () => {
  await using sandbox = await create();
  await sandbox.files.write("note", "kept");
  const cursor = (await client.events({ cursor: 0 }).next()).value?.cursor ?? 0;
  await sandbox.pause();
  const answers = await Promise.all([
    ...Array.from({ length: 6 }, async (_, n) => (await sandbox.commands.run(`cat note; echo ${n}`)).stdout),
    ...Array.from({ length: 3 }, async () => sandbox.files.read("note")),
  ]);
  expect(answers).toEqual([...Array.from({ length: 6 }, (_, n) => `kept${n}\n`), "kept", "kept", "kept"]);
  const states: string[] = [];
  for await (const event of client.events({ cursor })) {
    if (event.type === "sandbox.state" && event.sandboxId === sandbox.id) states.push(event.to);
    if (states.at(-1) === "running" && states.includes("resuming")) break;
  }
  expect(states.filter((state) => state === "resuming")).toHaveLength(1);
});

test("a pause in the middle of work, and requests in the middle of a pause, lose nothing", async () => {
  await using sandbox = await create();
  const writing = await sandbox.commands.run(
    "i=0; until [ -e stop ]; do i=$((i+1)); echo $i >>log; echo $i; sleep 0.01; done",
    {
      background: true,
    },
  );
  for (const round of [0, 1, 2]) {
    const pausing = Promise.allSettled([sandbox.pause(), sandbox.pause()]);
    const requests = Promise.allSettled([
      sandbox.files.write(`file${round}`, `round ${round}`),
      sandbox.commands.run(`echo ${round} >>rounds`),
    ]);
    const refusals = (await pausing).filter((one) => one.status === "rejected");
    expect(refusals.length).toBeLessThan(2);
    for (const { reason } of refusals) expect(reason).toMatchObject({ code: "invalid_state" });
    // A request during the pause waits and then wakes the sandbox; an earlier one goes on when the sandbox is awake.
    await sandbox.files.exists("log");
    expect((await requests).filter((one) => one.status === "rejected")).toEqual([]);
  }
  await sandbox.files.write("stop", "");
  const { stdout, exitCode } = await writing.wait();
  expect(exitCode).toBe(0);
  expect(await sandbox.files.read("log")).toBe(stdout);
  expect(stdout).toBe(
    stdout
      .split("\n")
      .slice(0, -1)
      .map((_, index) => `${index + 1}\n`)
      .join(""),
  );
  expect(await sandbox.files.read("rounds")).toBe("0\n1\n2\n");
  for (const round of [0, 1, 2]) expect(await sandbox.files.read(`file${round}`)).toBe(`round ${round}`);
});
