import { constants } from "node:os";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { GuestChannel } from "../../src/guest/channel.ts";
import { encodeNodes } from "../../src/guest/requests.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel, type HostFrameName } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";

const never = new AbortController().signal;
let guest: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
});

test.for<{
  what: string;
  ask: (channel: GuestChannel, signal: AbortSignal) => Promise<unknown>;
  name: HostFrameName;
  payload: number[] | undefined;
  answer: (id: number) => Buffer;
  result: unknown;
}>([
  {
    what: "counting",
    ask: (channel, signal) => channel.countProcesses(signal),
    name: "COUNT",
    payload: [],
    answer: (id) => guestFrame.counted(id, 12, { ofOneUser: 7 }),
    result: expect.objectContaining({ processes: 12, ofOneUser: 7 }),
  },
  {
    what: "capping file sizes",
    ask: (channel, signal) => channel.capFileSize(513, signal),
    name: "CAP",
    payload: [1, 2, 0, 0, 0, 0, 0, 0],
    answer: (id) => guestFrame.done(id),
    result: undefined,
  },
  {
    what: "lifting the cap",
    ask: (channel, signal) => channel.capFileSize(undefined, signal),
    name: "CAP",
    payload: Array.from({ length: 8 }, () => 255),
    answer: (id) => guestFrame.done(id),
    result: undefined,
  },
  {
    what: "starting the proxy",
    ask: (channel, signal) => channel.startProxy(8080, signal),
    name: "PROXY",
    payload: [0x90, 0x1f],
    answer: (id) => guestFrame.done(id),
    result: undefined,
  },
  {
    what: "finding holders",
    ask: (channel, signal) => channel.findDeletedFileUsers(Buffer.from("/a"), signal),
    name: "HOLDERS",
    payload: [2, 0, 0, 0, 47, 97],
    answer: (id) => guestFrame.heldBy(id, [{ pid: 4, streamId: 2, command: "vi" }]),
    result: [{ pid: 4, streamId: 2, command: "vi" }],
  },
  {
    what: "ending holders",
    ask: (channel, signal) => channel.findDeletedFileUsers(Buffer.from("/a"), signal, "END_HOLDERS"),
    name: "END_HOLDERS",
    payload: [2, 0, 0, 0, 47, 97],
    answer: (id) => guestFrame.heldBy(id, [{ pid: 4, streamId: 2, command: "vi" }]),
    result: [{ pid: 4, streamId: 2, command: "vi" }],
  },
  {
    what: "finding pipes and sockets",
    ask: (channel, signal) =>
      channel.findNodes(encodeNodes("synced", [{ path: Buffer.from("a"), emptyAtNs: -2n }]), signal),
    name: "NODES",
    payload: [1, 0, 0, 0, 1, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 97],
    answer: (id) => guestFrame.nodesAre(id, [Buffer.from("entry")]),
    result: [Buffer.from("entry")],
  },
  {
    what: "preparing a checkpoint",
    ask: (channel, signal) => channel.prepareCheckpoint(signal),
    name: "PREPARE",
    payload: [],
    answer: (id) => guestFrame.ready(id),
    result: undefined,
  },
  {
    what: "sending that it was restored",
    ask: (channel, signal) => channel.sendRestored("box", signal),
    name: "RESTORED",
    payload: undefined,
    answer: (id) => guestFrame.done(id),
    result: undefined,
  },
])("$what", async ({ ask, name, payload, answer, result }) => {
  const channel = await openChannel(guest);
  const asked = ask(channel, never);
  const frame = await guest.next(name);
  if (payload === undefined) expect(frame.payload.subarray(40).toString()).toBe("\u0003\0\0\0box");
  else expect([...frame.payload]).toEqual(payload);
  await guest.send(answer(frame.id));
  expect(await asked).toEqual(result);
  channel.close();
});

test("a request that the guest refuses says why", async () => {
  const channel = await openChannel(guest);
  const asked = caught(channel.startProxy(80, never));
  const { id } = await guest.next("PROXY");
  await guest.send(guestFrame.failed(id, constants.errno.EADDRINUSE, "listen on port 80"));
  expect(await asked).toMatchObject({ details: { errno: "EADDRINUSE" } });
  channel.close();
});

test("a request that takes too long ends with the reason of its signal, and a late answer is dropped", async () => {
  const channel = await openChannel(guest);
  const controller = new AbortController();
  const asked = caught(channel.countProcesses(controller.signal));
  const { id } = await guest.next("COUNT");
  const reason = new Error("deadline");
  controller.abort(reason);
  expect(await asked).toBe(reason);
  await guest.send(guestFrame.counted(id, 1));
  await guest.answersPing(channel);
  channel.close();
});

test("an answer of the wrong kind is not used", async () => {
  const channel = await openChannel(guest);
  const asked = caught(channel.countProcesses(never));
  const { id } = await guest.next("COUNT");
  await guest.send(guestFrame.done(id));
  expect(isSandboxError(await asked, "guest_violation")).toBe(true);
  channel.close();
});
