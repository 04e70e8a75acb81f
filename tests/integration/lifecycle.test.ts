import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Engine } from "@atoll/engine";
import type { SandboxId } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { describeDrivers } from "../support/drivers.ts";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { Conversation, openTestEngine, runIn } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

/** Writes a script that replaces runsc, for failures that the real runsc cannot be made to have. */
async function fakeRunsc(dataDir: string, body: string): Promise<string> {
  const path = join(dataDir, "runsc");
  const script = [
    "#!/bin/sh",
    'for word in "$@"; do',
    'if [ "$word" = run ]; then',
    body,
    "fi",
    "done",
    'exec runsc "$@"',
    "",
  ];
  await writeFile(path, script.join("\n"));
  await chmod(path, 0o755);
  return path;
}

describeDrivers("a sandbox under %s", (driver) => {
  test("kill ends everything of it, and a second kill, also at the same time, has the same result", async () => {
    const host = await openTestEngine();
    const sandbox = await host.engine.create({ driver });
    await sandbox.spawn({ argv: ["bash", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 1000"] });
    expect((await hostLeftovers(host.dataDir)).processes.length).toBeGreaterThan(0);
    await Promise.all([sandbox.kill(), sandbox.kill(), host.engine.kill(sandbox.id)]);
    await sandbox.kill();
    expect(await host.engine.kill(sandbox.id)).toBe(false);
    expect(sandbox.state).toBe("killed");
    expect(await hostLeftovers(host.dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    await host.dispose();
  });

  test("kill removes a tree whose paths are longer than the limit for a path", async () => {
    const host = await openTestEngine();
    const sandbox = await host.engine.create({ driver });
    const dig = "import os\nfor i in range(60): os.mkdir('d'*200); os.chdir('d'*200)";
    expect((await runIn(sandbox, ["python3", "-c", dig])).exitCode).toBe(0);
    await sandbox.kill();
    expect(await hostLeftovers(host.dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    await host.dispose();
  });

  test("a kill during the start ends the start and leaves nothing", async () => {
    const host = await openTestEngine();
    for (const moment of ["creating", "launched"]) {
      const seen = new Promise<SandboxId>((resolve) => {
        const stop = host.engine.events.listen((event) => {
          stop();
          resolve(event.sandboxId);
        });
      });
      const outcome = host.engine.create({ driver }).catch((error: unknown) => error);
      const id = await seen;
      if (moment === "launched") {
        await expect
          .poll(async () => (await hostLeftovers(host.dataDir)).processes.length, { interval: 1 })
          .toBeGreaterThan(0);
      }
      await host.engine.kill(id);
      // A start may be over before the kill arrives; then the kill ends the new sandbox.
      const created = await outcome;
      expect(created).toMatchObject(moment === "creating" ? { code: "sandbox_ended" } : {});
      if (!(created instanceof Error)) expect(created).toHaveProperty("state", "killed");
      expect(await hostLeftovers(host.dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    }
    await host.dispose();
  });

  test("an aborted create leaves nothing and rejects with the abort's reason", async () => {
    const host = await openTestEngine();
    const abort = new AbortController();
    host.engine.events.listen(() => abort.abort(new Error("not any more")));
    await expect(host.engine.create({ driver }, { signal: abort.signal })).rejects.toThrow("not any more");
    expect(await hostLeftovers(host.dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    await host.dispose();
  });

  test("files outlive the end of the sandbox until it is killed", async () => {
    const host = await openTestEngine();
    const sandbox = await host.engine.create({ driver });
    await sandbox.files.write("/home/user/kept", "precious");
    const [pid] = (await hostLeftovers(host.dataDir)).processes;
    process.kill(pid ?? 0, "SIGKILL");
    await expect.poll(() => sandbox.record).toMatchObject({ state: "failed", survives: ["files"] });
    const layers = join(host.dataDir, "sandboxes", sandbox.id, "layers");
    await expect.poll(async () => (await hostLeftovers(host.dataDir)).processes).toEqual([]);
    expect(await readdir(join(layers, "0", "upper", "home", "user"))).toContain("kept");
    await host.dispose();
  });

  test("two engines cannot use one data directory", async () => {
    const host = await openTestEngine();
    await expect(Engine.open({ dataDir: host.dataDir, guestPath: guestBinaryPath() })).rejects.toMatchObject({
      code: "in_use",
      message: expect.stringContaining(String(process.pid)) as string,
    });
    await host.dispose();
  });

  test("a closed engine leaves its sandboxes running, and the next one manages them", async () => {
    const first = await openTestEngine();
    const { id } = await first.engine.create({ driver });
    await first.engine.close();
    const second = await openTestEngine({ dataDir: first.dataDir });
    expect(second.engine.repairs).toEqual([{ what: `sandbox ${id}`, done: "adopted", because: "it runs" }]);
    expect((await runIn(second.engine.get(id), "echo still")).output).toBe("still\n");
    await second.dispose();
  });
});

describe("the platform of gVisor", { tags: "gvisor" }, () => {
  test("ptrace can be selected, and works the same", async () => {
    const host = await openTestEngine({ platform: "ptrace" });
    const sandbox = await host.engine.create();
    expect((await runIn(sandbox, "echo $((6*7)); exit 3")).output).toBe("42\n");
    await host.dispose();
  });

  test.for([
    ["systrap", "ptrace"],
    ["ptrace", "systrap"],
  ] as const)("a sandbox started on %s stays on it with an engine that prefers %s", async ([first, second]) => {
    const counter = ["bash", "-c", "i=0; while read x; do echo $((i+=1)); done"];
    const before = await openTestEngine({ platform: first });
    const { dataDir } = before;
    const { id } = await before.engine.create();
    const counting = await before.engine.get(id).spawn({ argv: counter, stdin: true }, { keep: true });
    await counting.writeStdin(Buffer.from("x\n"));
    await new Conversation(counting).until(/1\n/);
    await before.engine.close();
    // This engine takes over a running container, and only the container says on which platform it runs.
    const after = await openTestEngine({ dataDir, platform: second });
    await after.engine.pause(id);
    await after.engine.resume(id);
    const sandbox = after.engine.get(id);
    const [entry] = sandbox.inherited;
    const again = sandbox.attach(entry?.id ?? 0, { stdoutBytes: 2, stderrBytes: 0 });
    await again.writeStdin(Buffer.from("x\n"));
    expect(await new Conversation(again).until(/\n/)).toBe("2\n");
    const [{ n } = { n: 0 }] = await after.engine.checkpoints(id);
    const manifest = join(dataDir, "sandboxes", id, "checkpoints", String(n), "manifest.json");
    expect(JSON.parse(await readFile(manifest, "utf8"))).toMatchObject({ runtime: { platform: first } });
    await after.dispose();
  });
});

describe("a start that fails", () => {
  test.for([
    [
      "ends at once",
      "echo 'runsc: no such luck' >&2; exit 42",
      { details: { exitCode: 42, phase: "the guest's hello", stderr: "runsc: no such luck\n" } },
    ],
    ["is killed", "kill -9 $$", { details: { signal: "signal 9" } }],
    [
      "never answers",
      "exec sleep 1000",
      { message: expect.stringContaining("no answer within 1500 ms") as string },
      { startTimeoutMs: 1_500 },
    ],
  ] as const)(
    "the failure of a runtime that %s is reported, and nothing is left",
    { tags: "gvisor" },
    async ([, body, error, options]) => {
      const dataDir = await makeDataDir();
      const runscPath = await fakeRunsc(dataDir, body);
      const host = await openTestEngine({ dataDir, runscPath, ...options });
      await expect(host.engine.create()).rejects.toMatchObject({ code: "start_failed", ...error });
      expect(await hostLeftovers(dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
      await host.dispose();
    },
  );

  test("a kill while the driver hangs ends the start", { tags: "gvisor" }, async () => {
    const dataDir = await makeDataDir();
    const runscPath = await fakeRunsc(dataDir, "trap '' TERM INT HUP; while :; do sleep 1; done");
    const host = await openTestEngine({ dataDir, runscPath });
    const outcome = host.engine.create().catch((error: unknown) => error);
    await expect.poll(async () => (await hostLeftovers(dataDir)).processes.length).toBeGreaterThan(1);
    const [record] = host.engine.list();
    if (record === undefined) throw new Error("The sandbox is not listed while it starts");
    await host.engine.kill(record.id);
    expect(await outcome).toMatchObject({ code: "sandbox_ended" });
    expect(await hostLeftovers(dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    await host.dispose();
  });

  test("leftovers of a dead server are removed at the next start, and unknown entries are reported", async () => {
    const host = await openTestEngine();
    const { dataDir } = host;
    await host.engine.close();
    await mkdir(join(dataDir, "sandboxes", "aaaaaaaaaaaaaaaaaaaa", "layers", "0", "upper"), { recursive: true });
    await mkdir(join(dataDir, "sandboxes", "bbbbbbbbbbbbbbbbbbbb"), { recursive: true });
    await writeFile(join(dataDir, "sandboxes", "bbbbbbbbbbbbbbbbbbbb", "record.json"), "{ torn");
    const next = await openTestEngine({ dataDir });
    expect(next.engine.repairs.map(({ what, done }) => [what.replace(/.*[/ ]/, ""), done])).toEqual([
      ["bbbbbbbbbbbbbbbbbbbb", "reported"],
      ["aaaaaaaaaaaaaaaaaaaa", "removed"],
    ]);
    await next.dispose();
  });

  test("mounts and launchers of a dead server, and their directories, are removed at the next start", async () => {
    const host = await openTestEngine();
    const { dataDir } = host;
    await host.engine.close();
    const dir = join(dataDir, "sandboxes", "aaaaaaaaaaaaaaaaaaaa");
    const outer = join(dir, "a mount");
    const inner = join(outer, "on a mount");
    for (const target of [outer, inner]) {
      await mkdir(target, { recursive: true });
      execFileSync("sh", ["-c", 'mount -t tmpfs none "$0"', target]);
    }
    // The script has the name of a launcher, and waits for as long as the test runs.
    await writeFile(join(dataDir, "launch"), "read forever\n");
    const launcher = spawn("sh", ["launch", "--dir", join(dir, "run", "bbbbbbbbbbbbbbbbbbbb")], { cwd: dataDir });
    await once(launcher, "spawn");
    const ended = once(launcher, "exit");
    const next = await openTestEngine({ dataDir });
    expect(next.engine.repairs.map(({ what, done }) => [what, done])).toEqual([
      [`mount ${inner}`, "removed"],
      [`mount ${outer}`, "removed"],
      ["sandbox aaaaaaaaaaaaaaaaaaaa", "removed"],
      [`process ${launcher.pid}`, "removed"],
    ]);
    expect(await ended).toEqual([null, "SIGKILL"]);
    expect(await hostLeftovers(dataDir)).toEqual({ processes: [], mounts: [], cgroups: [], sandboxes: [] });
    await next.dispose();
  });
});
