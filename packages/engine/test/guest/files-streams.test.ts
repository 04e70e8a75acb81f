import { constants } from "node:os";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GuestChannel } from "../../src/guest/channel.ts";
import { GuestFiles } from "../../src/guest/files.ts";
import type { WatchEvent } from "../../src/guest/tool-records.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";
import { eventRecord, FakeTool, framed } from "../support/tool-output.ts";

const { errno } = constants;
let guest: FakeGuest;
let channel: GuestChannel;
let files: GuestFiles;

beforeEach(async () => {
  guest = new FakeGuest();
  channel = await openChannel(guest);
  files = new GuestFiles(() => channel);
});
afterEach(() => {
  channel.close();
  guest[Symbol.dispose]();
});

describe("reading", () => {
  test("bytes come as they are", async () => {
    const read = files.readAll("/a");
    const tool = await FakeTool.start(guest);
    const content = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    await tool.write(content, { pieceBytes: 100 });
    await tool.exit();
    expect(await read).toEqual(content);
  });

  test("a failure after the first bytes is thrown, so that half a file never looks complete", async () => {
    const read = caught(files.readAll("/a"));
    const tool = await FakeTool.start(guest);
    await tool.write(Buffer.from("half"));
    await tool.exit({ code: errno.EIO });
    expect(isSandboxError(await read, "file_error")).toBe(true);
  });

  test("a reader that has seen enough ends the tool", async () => {
    const readOne = async (): Promise<string> => {
      for await (const chunk of files.read("/a")) return chunk.toString();
      return "";
    };
    const read = readOne();
    const tool = await FakeTool.start(guest);
    await tool.write(Buffer.from("first"));
    await tool.dieWhenKilled();
    expect(await read).toBe("first");
  });

  test("a file that is too large to be read at once is refused, and the tool ended", async () => {
    const read = caught(files.readAll("/a", { maxBytes: 10 }));
    const tool = await FakeTool.start(guest);
    await tool.write(Buffer.alloc(11));
    await tool.dieWhenKilled();
    expect(isSandboxError(await read, "limit_reached")).toBe(true);
  });

  test("an abort is the caller's own reason", async () => {
    const controller = new AbortController();
    const read = caught(files.readAll("/a", { signal: controller.signal }));
    const tool = await FakeTool.start(guest);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    await tool.dieWhenKilled();
    expect(await read).toBe(reason);
  });
});

describe("writing", () => {
  async function* pieces(...parts: string[]): AsyncGenerator<Buffer, void, void> {
    for (const part of parts) yield Buffer.from(part);
  }

  test.for([
    { options: {}, argv: ["write", "/a", "644", "replace"] },
    { options: { mode: 0o600, how: "create" }, argv: ["write", "/a", "600", "create"] },
    { options: { how: "append" }, argv: ["write", "/a", "644", "append"] },
  ] as const)("$argv", async ({ options, argv }) => {
    const written = files.write("/a", "content", options);
    const tool = await FakeTool.start(guest);
    expect(tool.argv).toEqual(argv);
    expect(tool.hasStdin).toBe(true);
    expect(await tool.readAll()).toBe("content");
    await tool.exit();
    await written;
  });

  test.for<[string, () => string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>]>([
    ["text", () => "some text"],
    ["bytes", () => Buffer.from("some text")],
    ["pieces", () => [Buffer.from("some "), Buffer.from("text")]],
    ["pieces that come one by one", () => pieces("some ", "text")],
  ])("%s", async ([, content]) => {
    const written = files.write("/a", content());
    const tool = await FakeTool.start(guest);
    expect(await tool.readAll()).toBe("some text");
    await tool.exit();
    await written;
  });

  test("an empty source makes an empty file", async () => {
    const written = files.write("/a", "");
    const tool = await FakeTool.start(guest);
    expect(await tool.readAll()).toBe("");
    await tool.exit();
    await written;
  });

  test.for([
    { what: "any error", error: new Error("the source broke") },
    {
      what: "an error that closed pipes have too",
      error: new SandboxError("invalid_state", "Cannot use files of sandbox x"),
    },
  ])("a source that fails with $what leaves nothing, and its error is thrown", async ({ error }) => {
    async function* broken(): AsyncGenerator<Buffer, void, void> {
      yield Buffer.from("half");
      throw error;
    }
    const written = caught(files.write("/a", broken()));
    const tool = await FakeTool.start(guest);
    await tool.dieWhenKilled();
    expect(await written).toBe(error);
  });

  test("a tool that ends first says why, and the source is closed", async () => {
    let isLetGo = false;
    async function* endless(): AsyncGenerator<Buffer, void, void> {
      try {
        for (;;) yield Buffer.alloc(65_536);
      } finally {
        isLetGo = true;
      }
    }
    const written = caught(files.write("/a", endless()));
    const tool = await FakeTool.start(guest);
    await tool.complain("write /a\n");
    await tool.exit({ code: errno.ENOSPC });
    expect(await written).toMatchObject({ code: "no_space", details: { message: "write /a" } });
    expect(isLetGo).toBe(true);
  });

  test("a tool that reports success before it has everything is an error", async () => {
    const written = caught(files.write("/a", Buffer.alloc(1024 * 1024)));
    const tool = await FakeTool.start(guest);
    await guest.send(guestFrame.stdinClosed(tool.id, 0));
    await tool.exit({ code: 0 });
    expect(isSandboxError(await written, "guest_violation")).toBe(true);
  });

  test("an abort is the caller's own reason", async () => {
    const controller = new AbortController();
    const written = caught(files.write("/a", Buffer.alloc(1024 * 1024), { signal: controller.signal }));
    const tool = await FakeTool.start(guest);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    await tool.dieWhenKilled();
    expect(await written).toBe(reason);
  });
});

describe("watching", () => {
  async function collect(events: AsyncIterable<WatchEvent>, into: WatchEvent[]): Promise<void> {
    for await (const event of events) into.push(event);
  }

  test("events come as they happen, until the signal aborts", async () => {
    const controller = new AbortController();
    const events: WatchEvent[] = [];
    const watched = collect(files.watch("/a", { recursive: true, signal: controller.signal }), events);
    const tool = await FakeTool.start(guest);
    expect(tool.argv).toEqual(["watch", "/a", "recursive"]);
    await tool.write(
      framed(eventRecord({ cursor: 1, kind: 8, path: "" }), eventRecord({ cursor: 2, kind: 1, path: "b" })),
    );
    await expect.poll(() => events.map(({ kind }) => kind)).toEqual(["watching", "created"]);
    // The kill may come in the middle of a record.
    await tool.write(framed(eventRecord()).subarray(0, 7));
    controller.abort();
    await tool.dieWhenKilled();
    await watched;
    expect(events).toHaveLength(2);
  });

  test("leaving the loop ends the tool", async () => {
    const watchOne = async (): Promise<string> => {
      for await (const { kind } of files.watch("/a")) return kind;
      return "";
    };
    const watched = watchOne();
    const tool = await FakeTool.start(guest);
    expect(tool.argv).toEqual(["watch", "/a", "flat"]);
    await tool.write(framed(eventRecord({ kind: 8, path: "" })));
    await tool.dieWhenKilled();
    expect(await watched).toBe("watching");
  });

  test("a missing path is an error", async () => {
    const watched = caught(collect(files.watch("/a"), []));
    const tool = await FakeTool.start(guest);
    await tool.exit({ code: errno.ENOENT });
    expect(isSandboxError(await watched, "not_found")).toBe(true);
  });

  test("a malformed event ends the tool", async () => {
    const watched = caught(collect(files.watch("/a"), []));
    const tool = await FakeTool.start(guest);
    await tool.write(framed(Buffer.from("nonsense")));
    await tool.dieWhenKilled();
    expect(isSandboxError(await watched, "guest_violation")).toBe(true);
  });
});
