import { afterEach, beforeEach, expect, test } from "vitest";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";
import { spawnOf } from "../support/spawn-request.ts";

const never = new AbortController().signal;
let guest: FakeGuest;
/** The same guest, restored in another container. */
let restored: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
  restored = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
  restored[Symbol.dispose]();
});

async function prepare(channel: Awaited<ReturnType<typeof openChannel>>): Promise<void> {
  const prepared = channel.prepareCheckpoint(never);
  const { id } = await guest.next("PREPARE");
  await guest.send(guestFrame.ready(id));
  await prepared;
}

/** Makes a channel between two containers, with a stream of a process. */
async function leaveWithProcess() {
  const channel = await openChannel(guest);
  const spawned = channel.spawn(spawnOf(["sleep"]));
  const id = await guest.start();
  const process = await spawned;
  await prepare(channel);
  channel.leave();
  return { channel, process, id };
}

test("frames to a prepared guest are queued, and sent after the next greeting, in whichever container", async () => {
  const channel = await openChannel(guest);
  const spawned = channel.spawn(spawnOf(["cat"], { stdin: true }));
  const id = await guest.start();
  const process = await spawned;
  await prepare(channel);
  await process.writeStdin("queued");
  await process.kill("SIGHUP");
  channel.leave();
  guest.die();

  const moved = channel.moveTo({ paths: restored.paths, signal: never });
  await restored.greet({ entries: [{ id, pid: 100 }] });
  await moved;
  expect((await restored.until("STDIN")).payload.subarray(8).toString()).toBe("queued");
  expect((await restored.until("SIGNAL")).id).toBe(id);
  expect((await restored.until("ATTACH")).id).toBe(id);
  await restored.send(guestFrame.output(id, 0, 0, 1, "here"));
  const { value } = await process[Symbol.asyncIterator]().next();
  expect(value?.data.toString()).toBe("here");
  channel.close();
});

test("a process that was requested while the guest was prepared is started afterwards", async () => {
  const channel = await openChannel(guest);
  await prepare(channel);
  const spawned = channel.spawn(spawnOf(["late"]));
  channel.leave();
  const moved = channel.moveTo({ paths: restored.paths, signal: never });
  await restored.greet();
  await moved;
  await restored.start(77);
  expect((await spawned).pid).toBe(77);
  channel.close();
});

test("the end of an earlier container has no effect", async () => {
  const channel = await openChannel(guest);
  await prepare(channel);
  channel.leave();
  guest.die();
  const moved = channel.moveTo({ paths: restored.paths, signal: never });
  await restored.greet();
  await moved;
  expect(channel.isOpen).toBe(true);
  await restored.answersPing(channel);
  channel.close();
});

test("a guest that does not answer in its new container can continue in another, with its streams", async () => {
  const { channel, process, id } = await leaveWithProcess();
  const failed = caught(channel.moveTo({ paths: restored.paths, signal: never }));
  await restored.until("HELLO");
  restored.die();
  expect(await failed).toMatchObject({ code: "sandbox_ended" });
  expect(channel.isOpen).toBe(true);

  using third = new FakeGuest();
  const moved = channel.moveTo({ paths: third.paths, signal: never });
  await third.greet({ entries: [{ id, pid: 100 }] });
  await moved;
  await third.next("ATTACH");
  await third.send(guestFrame.output(id, 0, 0, 1, "alive"));
  const { value } = await process[Symbol.asyncIterator]().next();
  expect(value?.data.toString()).toBe("alive");
  channel.close();
});

test("a guest that ends before `commitMove` in its new container can continue in another, with streams", async () => {
  const { channel, process, id } = await leaveWithProcess();
  const moved = channel.moveTo({ paths: restored.paths, signal: never });
  await restored.greet({ entries: [{ id, pid: 100 }] });
  await moved;
  const sent = caught(channel.sendRestored("its-name", never));
  await restored.until("RESTORED");
  restored.die();
  expect(await sent).toMatchObject({ code: "sandbox_ended" });
  channel.leave();
  expect(channel.isOpen).toBe(true);

  using third = new FakeGuest();
  const again = channel.moveTo({ paths: third.paths, signal: never });
  await third.greet({ entries: [{ id, pid: 100 }] });
  await again;
  channel.commitMove();
  await third.next("ATTACH");
  await third.send(guestFrame.output(id, 0, 0, 1, "alive"));
  const { value } = await process[Symbol.asyncIterator]().next();
  expect(value?.data.toString()).toBe("alive");
  channel.close();
});

test.for(["before", "after"])("the end of a container %s `commitMove` is the end of the sandbox", async (when) => {
  const channel = await openChannel(guest);
  await prepare(channel);
  channel.leave();
  const moved = channel.moveTo({ paths: restored.paths, signal: never });
  await restored.greet();
  await moved;
  if (when === "after") channel.commitMove();
  const asked = caught(channel.ping(never));
  restored.die();
  expect(await asked).toMatchObject({ code: "sandbox_ended" });
  if (when === "before") channel.commitMove();
  expect(await channel.closed).toMatchObject({ code: "sandbox_ended" });
});
