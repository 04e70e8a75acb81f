import { afterEach, beforeEach, expect, test } from "vitest";
import { listFewNodes, neverNs } from "../../src/guest/guest-nodes.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import type { SandboxLife } from "../../src/lifecycle/sandbox-life.ts";
import { prepareGuest } from "../../src/operations/prepare-guest.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";

const never = new AbortController().signal;
const places = [{ path: Buffer.from("tmp"), emptyAtNs: neverNs }];
let guest: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
});

function entry(type: string, name: string, { target = "", more = "" } = {}): Buffer {
  const attributes = Buffer.alloc(40);
  return Buffer.concat([
    new PayloadWriter()
      .u8(type.codePointAt(0) ?? 0)
      .bytes(attributes)
      .str(name)
      .str(target)
      .finish(),
    Buffer.from(more),
  ]);
}

test("pipes and sockets below the root are taken as they are", async () => {
  const channel = await openChannel(guest);
  const listing = listFewNodes(channel, { places, where: "in" }, never);
  const { id } = await guest.next("NODES");
  const entries = [entry("p", "tmp/pipe"), entry("s", "tmp/deep/er/socket"), entry("p", "x".repeat(8_000))];
  await guest.send(guestFrame.nodesAre(id, entries));
  expect((await listing)?.map((node) => node.subarray(4))).toEqual(entries);
  channel.close();
});

test.for<[what: string, entry: Buffer]>([
  ["nothing", Buffer.alloc(0)],
  ["bytes without a form", Buffer.alloc(20_000, 7)],
  ["a device", entry("c", "tmp/null")],
  ["a name from the root", entry("p", "/etc/cron.d/x")],
  ["a name that leads out", entry("p", "tmp/../../x")],
  ["a name without an end", entry("p", "tmp/")],
  ["a name with a zero", entry("p", "tmp/a\0b")],
  ["a name that is too long", entry("p", "x".repeat(8_001))],
  ["a target", entry("s", "tmp/socket", { target: "/etc/passwd" })],
  ["more than an entry", entry("p", "tmp/pipe", { more: "x" })],
])("%s is no pipe or socket, and a checkpoint is made without the list", async ([, hostile]) => {
  const channel = await openChannel(guest);
  const listing = caught(listFewNodes(channel, { places, where: "in" }, never));
  const { id } = await guest.next("NODES");
  await guest.send(guestFrame.nodesAre(id, [entry("p", "tmp/pipe"), hostile]));
  expect(await listing).toMatchObject({ code: "guest_violation" });

  const preparing = prepareGuest({ channel } as SandboxLife, places);
  const asked = await guest.next("NODES");
  await guest.send(guestFrame.nodesAre(asked.id, [hostile]));
  const prepare = await guest.next("PREPARE");
  await guest.send(guestFrame.ready(prepare.id));
  expect(await preparing).toEqual({});
  channel.close();
});
