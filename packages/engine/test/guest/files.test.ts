import { constants } from "node:os";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GuestChannel } from "../../src/guest/channel.ts";
import { GuestFiles } from "../../src/guest/files.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { entryRecord, FakeTool, framed } from "../support/tool-output.ts";

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

describe("the arguments of the tools", () => {
  test.for<{ what: string; ask: () => Promise<unknown>; argv: string[]; user?: string }>([
    { what: "stat", ask: () => files.stat("/a"), argv: ["stat", "/a"] },
    { what: "list", ask: () => files.list("/a"), argv: ["list", "/a", "1"] },
    { what: "list, deep", ask: () => files.list("/a", { depth: 3 }), argv: ["list", "/a", "3"] },
    { what: "read", ask: () => files.readAll("/a"), argv: ["read", "/a", "0", "-1"] },
    {
      what: "read, a part",
      ask: () => drain(files.read("/a", { offset: 5, length: 7 })),
      argv: ["read", "/a", "5", "7"],
    },
    { what: "mkdir", ask: () => files.mkdir("/a"), argv: ["mkdir", "/a", "755", "parents"] },
    {
      what: "mkdir, one",
      ask: () => files.mkdir("/a", { parents: false, mode: 0o700 }),
      argv: ["mkdir", "/a", "700", "one"],
    },
    { what: "rename", ask: () => files.rename("/a", "/b"), argv: ["rename", "/a", "/b", "replace"] },
    {
      what: "rename, carefully",
      ask: () => files.rename("/a", "/b", { replace: false }),
      argv: ["rename", "/a", "/b", "keep"],
    },
    { what: "remove", ask: () => files.remove("/a"), argv: ["remove", "/a", "one"] },
    {
      what: "remove, all, as root",
      ask: () => files.remove("/a", { recursive: true, user: "root" }),
      argv: ["remove", "/a", "recursive"],
      user: "root",
    },
  ])("$what", async ({ ask, argv, user = "user" }) => {
    const asked = ask();
    const tool = await FakeTool.start(guest);
    expect({ argv: tool.argv, user: tool.user, hasStdin: tool.hasStdin }).toEqual({ argv, user, hasStdin: false });
    if (argv[0] === "stat") await tool.write(framed(entryRecord({ name: "/a" })));
    await tool.exit();
    await asked;
  });

  test("a path with a NUL in it is refused here", async () => {
    expect(isSandboxError(await caught(files.stat("/a\0b")), "invalid_argument")).toBe(true);
    expect(isSandboxError(await caught(files.rename("/a", "/b\0")), "invalid_argument")).toBe(true);
    await guest.hearsOnlyPing(channel);
  });

  test("a sandbox that does not run gets no request", async () => {
    const refusal = new SandboxError("invalid_state", "Cannot use files of sandbox x: it is paused");
    const closed = new GuestFiles(() => {
      throw refusal;
    });
    expect(await caught(closed.stat("/a"))).toBe(refusal);
  });
});

describe("listing", () => {
  const entries = ["one", "two", "three"].map((name) => entryRecord({ name }));

  test.for([1, 3, 4, 5, 7, 63, 64, 65, 1000])("entries in pieces of %i bytes are whole", async (pieceBytes) => {
    const listed = files.list("/");
    const tool = await FakeTool.start(guest);
    await tool.write(framed(...entries), { pieceBytes });
    await tool.exit();
    expect((await listed).map(({ name }) => name)).toEqual(["one", "two", "three"]);
  });

  test("a record that is too long ends the tool, and is a breach of the tool's alone", async () => {
    const listed = caught(files.list("/"));
    const tool = await FakeTool.start(guest);
    await tool.write(Buffer.from([255, 255, 255, 255]));
    await tool.dieWhenKilled();
    expect(isSandboxError(await listed, "guest_violation")).toBe(true);
    await guest.answersPing(channel);
  });

  test("a malformed record ends the tool", async () => {
    const listed = caught(files.list("/"));
    const tool = await FakeTool.start(guest);
    await tool.write(framed(Buffer.from("nonsense")));
    await tool.dieWhenKilled();
    expect(isSandboxError(await listed, "guest_violation")).toBe(true);
  });

  test("a tool that reports success in the middle of a record is an error", async () => {
    const listed = caught(files.list("/"));
    const tool = await FakeTool.start(guest);
    await tool.write(framed(...entries).subarray(0, -1));
    await tool.exit({ code: 0 });
    expect(isSandboxError(await listed, "guest_violation")).toBe(true);
  });

  test("a tool that was cut off in the middle of a record says why itself", async () => {
    const listed = caught(files.list("/"));
    const tool = await FakeTool.start(guest);
    await tool.write(framed(...entries).subarray(0, -1));
    await tool.complain("disk on fire\n");
    await tool.exit({ code: errno.EIO });
    expect(await listed).toMatchObject({ code: "file_error", details: { errno: "EIO", message: "disk on fire" } });
  });

  test("a listing without end does not fill the host's memory", async () => {
    const listed = caught(files.list("/"));
    const tool = await FakeTool.start(guest);
    const names = Array.from({ length: 8 }, (_, index) => entryRecord({ name: `${index}`.repeat(8000) }));
    const chunk = framed(...names);
    const flood = async (): Promise<void> => {
      for (;;) await tool.write(chunk);
    };
    // The flood ends when the host does not take any more.
    flood().catch(() => undefined);
    expect(await listed).toMatchObject({ code: "limit_reached" });
  });

  test("a stat without an entry is an error", async () => {
    const asked = caught(files.stat("/a"));
    const tool = await FakeTool.start(guest);
    await tool.exit();
    expect(isSandboxError(await asked, "guest_violation")).toBe(true);
  });
});

describe("errors", () => {
  test.for([
    { name: "ENOENT", code: "not_found", text: "no such file or directory" },
    { name: "ENOTDIR", code: "not_found", text: "not a directory" },
    { name: "EACCES", code: "permission_denied", text: "permission denied" },
    { name: "EPERM", code: "permission_denied", text: "operation not permitted" },
    { name: "EROFS", code: "permission_denied", text: "read-only file system" },
    { name: "EEXIST", code: "already_exists", text: "it exists already" },
    { name: "ENOSPC", code: "no_space", text: "no space left" },
    { name: "EDQUOT", code: "no_space", text: "EDQUOT" },
    { name: "EFBIG", code: "no_space", text: "the file would grow beyond the limit" },
    { name: "EISDIR", code: "file_error", text: "it is a directory" },
    { name: "ENOTEMPTY", code: "file_error", text: "the directory is not empty" },
    { name: "EAGAIN", code: "file_error", text: "no more processes are allowed" },
  ] as const)("$name is $code", async ({ name, code, text }) => {
    const asked = caught(files.remove("/a"));
    const tool = await FakeTool.start(guest);
    await tool.complain("remove: /a\n");
    await tool.exit({ code: errno[name] });
    expect(await asked).toMatchObject({
      code,
      message: `Cannot remove /a: ${text}`,
      details: { errno: name, message: "remove: /a" },
    });
  });

  test.for([
    { what: "the disk quota", exit: { kind: 1, code: 25 }, code: "no_space" },
    { what: "a kill from inside", exit: { kind: 1, code: 9 }, code: "file_error" },
  ])("$what", async ({ exit, code }) => {
    const asked = caught(files.mkdir("/a"));
    const tool = await FakeTool.start(guest);
    await tool.exit(exit);
    expect(await asked).toMatchObject({ code });
  });

  test("a number that is no errno is reported as it is", async () => {
    const asked = caught(files.mkdir("/a"));
    const tool = await FakeTool.start(guest);
    await tool.exit({ code: 250 });
    expect(await asked).toMatchObject({ code: "file_error", details: { errno: "errno 250" } });
  });

  test.for([
    { what: "is there", code: 0, result: true },
    { what: "is not there", code: errno.ENOENT, result: false },
    { what: "is below a file", code: errno.ENOTDIR, result: false },
  ])("exists: what $what", async ({ code, result }) => {
    const asked = files.exists("/a");
    const tool = await FakeTool.start(guest);
    if (code === 0) await tool.write(framed(entryRecord({ name: "/a" })));
    await tool.exit({ code });
    expect(await asked).toBe(result);
  });

  test("exists: a path that the user may not look at is an error", async () => {
    const asked = caught(files.exists("/a"));
    const tool = await FakeTool.start(guest);
    await tool.exit({ code: errno.EACCES });
    expect(isSandboxError(await asked, "permission_denied")).toBe(true);
  });

  test("the end of the sandbox in the middle of it is the error", async () => {
    const asked = caught(files.stat("/a"));
    await FakeTool.start(guest);
    guest.die();
    expect(isSandboxError(await asked, "sandbox_ended")).toBe(true);
  });
});

async function drain(chunks: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of chunks);
}
