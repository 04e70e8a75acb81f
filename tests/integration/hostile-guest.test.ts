// @module-tag gvisor
import type { Sandbox } from "@atoll/engine";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

/** Root in the sandbox can write to the guest's own stdout, so everything that arrives from a sandbox may be forged. */
describe("a sandbox whose root attacks the channel", () => {
  let host: TestEngine;
  let neighbour: Sandbox;

  beforeAll(async () => {
    host = await openTestEngine();
    neighbour = await host.engine.create();
  });
  afterAll(async () => {
    await host.dispose();
  });

  const frame = (type: number, id: number, payload: string): string =>
    [
      "import struct,os,sys",
      "def frame(t,i,p):",
      "  return struct.pack('<IIII',0x4c4f5441,len(p),t,i)+p+struct.pack('<I',~(len(p)^i^t)&0xffffffff)",
      `d=frame(${type},${id},${payload})`,
      "f=os.open('/proc/1/fd/1',os.O_WRONLY)",
      "os.write(f,d)",
    ].join("\n");

  test.for([
    ["random bytes", "import os\nf=os.open('/proc/1/fd/1',os.O_WRONLY)\nos.write(f,os.urandom(5000))"],
    [
      "a frame whose payload never comes",
      "import os,struct\nf=os.open('/proc/1/fd/1',os.O_WRONLY)\n" +
        "os.write(f,struct.pack('<IIII',0x4c4f5441,0xffffffff,0x92,1))",
    ],
    ["an unknown type", frame(0xee, 0, "b''")],
    ["an impossible exit code", frame(0x95, 1, "struct.pack('<BBBBIQQQQ',0,0,0,0,4000,0,0,0,0)")],
    ["an exit of its own process before its output", frame(0x95, 1, "struct.pack('<BBBBIQQQQ',0,0,0,0,0,99999,0,0,0)")],
    ["output at an offset that does not follow", frame(0x92, 1, "struct.pack('<QQB',777,777,1)+b'lies'")],
  ] as const)("%s: the sandbox is ended, and other sandboxes run on", async ([, script]) => {
    const sandbox = await host.engine.create();
    await runIn(sandbox, ["python3", "-c", script], { user: "root" }).catch(() => undefined);
    await expect.poll(() => sandbox.record).toMatchObject({ state: "failed", reason: { kind: "guest" } });
    await expect(sandbox.spawn({ argv: ["true"] })).rejects.toMatchObject({ code: "invalid_state" });
    expect((await runIn(neighbour, "echo fine")).output).toBe("fine\n");
    await sandbox.kill();
  });

  test("a guest that is killed from inside ends its sandbox, and the engine reports that", async () => {
    const sandbox = await host.engine.create();
    const outcome = runIn(sandbox, "kill -9 1; exec sleep 1000", { user: "root" });
    await expect(outcome).rejects.toMatchObject({ code: "sandbox_ended" });
    await expect.poll(() => sandbox.record).toMatchObject({ state: "failed", reason: { kind: "exited" } });
    expect((await runIn(neighbour, "echo fine")).output).toBe("fine\n");
    await sandbox.kill();
  });

  test("a kernel that protects its init protects the guest", async () => {
    const sandbox = await host.engine.create({ driver: "local" });
    expect((await runIn(sandbox, "kill -9 1; echo $?", { user: "root" })).output).toBe("0\n");
    expect((await runIn(sandbox, "echo on")).output).toBe("on\n");
    expect(sandbox.state).toBe("running");
    await sandbox.kill();
  });
});
