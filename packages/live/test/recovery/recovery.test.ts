import { SandboxError } from "@atoll/protocol";
import { expect, test } from "vitest";
import { counter, startCounter } from "../support/counter-app.ts";

test("a crash loop ends in the last good version with its state, and then in error", async () => {
  const calls = "die() { process.abort(); },";
  await using app = await startCounter({ "src/counter.ts": counter({ calls }) }, { probationMs: 0, maxRestarts: 1 });
  await expect.poll(() => app.info.lastGood).toBe(1);
  await app.call("counter", "add", 5);
  await app.reload({ "src/counter.ts": counter({ calls, add: "state.count += by * 100;" }) });
  await expect.poll(() => app.info.lastGood).toBe(2);
  const die = async (): Promise<void> => {
    const ended = app.waitFor("process.end");
    await expect(app.call("counter", "die")).rejects.toMatchObject({ code: "sandbox_ended" });
    await ended;
  };
  await die();
  await app.assertRunning();
  expect(await app.call("counter", "add", 1)).toBe(105);
  await die();
  await app.assertRunning();
  expect(app.info).toMatchObject({ generation: 1, lastGood: 1 });
  expect(await app.call("counter", "add", 1)).toBe(6);
  await die();
  await app.assertRunning();
  await die();
  await expect(app.assertRunning()).rejects.toThrow("it ended too often");
  const recoveries = app.events.flatMap((event) => (event.type === "recovery" ? [event.recovery] : []));
  expect(recoveries).toEqual(["restart", "rollback", "restart", "terminate"]);
  expect(app.manager.listVersions(app.id)).toMatchObject([
    { number: 2, isGood: false },
    { number: 1, isCurrent: true },
  ]);
  await app.manager.restart(app.id);
  expect(await app.call("counter", "add", 1)).toBe(6);
});

test("an error of security isolates: nothing runs and no code is taken until a restart is requested", async () => {
  await using app = await startCounter();
  await app.call("counter", "add", 5);
  const violation = new SandboxError("guest_violation", "Cannot trust it");
  expect(await app.manager.handleError(app.id, violation)).toBe("isolate");
  expect(app.info).toMatchObject({ state: "error", reason: "Cannot trust it" });
  await expect(app.reload({ "src/counter.ts": counter({ add: "" }) })).rejects.toMatchObject({
    code: "permission_denied",
    suggestion: expect.stringContaining("restart"),
  });
  await app.manager.restart(app.id);
  expect(app.info.state).toBe("running");
});

test("handled errors are followed by what is suggested", async () => {
  await using app = await startCounter({}, { probationMs: 60_000 });
  await app.call("counter", "add", 5);
  const compile = new SandboxError("compile_failed", "Cannot compile");
  expect(await app.manager.handleError(app.id, compile)).toBe("rollback");
  expect(await app.call("counter", "add", 1)).toBe(6);
  expect(app.info).toMatchObject({ generation: 1, restarts: 0 });
  expect(await app.manager.handleError(app.id, new SandboxError("limit_reached", "Cannot go on"))).toBe("restart");
  expect(app.info).toMatchObject({ state: "running", restarts: 1, lastRestart: { reason: "Cannot go on" } });
  expect(await app.manager.handleError(app.id, new SandboxError("unavailable", "Cannot reach it"))).toBe("retry");
  expect(app.info).toMatchObject({ state: "running", restarts: 1 });
});

test("a process that is blocked says so in its reason", async () => {
  const calls = "hang() { for (;;); },";
  await using app = await startCounter({ "src/counter.ts": counter({ calls }) }, { limits: { unresponsiveMs: 500 } });
  const silent = app.waitFor("recovery");
  await expect(app.call("counter", "hang")).rejects.toMatchObject({ code: "sandbox_ended" });
  expect(await silent).toMatchObject({ kind: "runtime", code: "guest_silent", recovery: "restart" });
  await app.assertRunning();
});
