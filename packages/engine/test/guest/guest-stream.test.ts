import { isSandboxError, SandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { toGuest } from "../../src/guest/frames.ts";
import { GuestStream, type StreamOptions } from "../../src/guest/guest-stream.ts";
import type { ExitReport, GuestMessage, StreamEntry } from "../../src/guest/messages.ts";
import { MalformedPayload } from "../../src/guest/wire.ts";

const exitReport: ExitReport = {
  exitCode: 3,
  signal: null,
  timedOut: false,
  cpuUserMs: 1,
  cpuSystemMs: 1,
  peakMemoryBytes: 1024,
  at: 0,
};
const entry: StreamEntry = {
  id: 5,
  kind: "process",
  state: "living",
  hasPty: false,
  outputEnded: false,
  inputClosed: false,
  pid: 77,
  ackedAt: 0,
  producedAt: 0,
  inputReceived: 0,
  inputHandedOn: 0,
  exit: undefined,
};

function makeStream(options: Partial<StreamOptions> = {}): {
  stream: GuestStream;
  sent: number[];
  frames: Buffer[];
  forgotten: () => number;
} {
  const frames: Buffer[] = [];
  const sent: number[] = [];
  let forgotten = 0;
  const stream = new GuestStream({
    id: 5,
    kind: "process",
    windowBytes: 100,
    from: { stdoutBytes: 0, stderrBytes: 0 },
    input: { receivedOffset: 0, handedOnOffset: 0 },
    send: (frame) => {
      frames.push(frame);
      sent.push(frame.readUInt8(8));
    },
    forget: () => {
      forgotten += 1;
    },
    ...options,
  });
  return { stream, sent, frames, forgotten: () => forgotten };
}

const output = (at: number, offset: number, length: number, output: 1 | 2 = 1): GuestMessage => ({
  type: "output",
  id: 5,
  at,
  offset,
  output,
  data: Buffer.alloc(length),
});
const exit = (parts: Partial<ExitReport> = {}): GuestMessage => ({
  type: "exit",
  id: 5,
  exit: { ...exitReport, ...parts },
});

describe("messages that contradict earlier ones", () => {
  test.for<{ what: string; honest: GuestMessage[]; lie: GuestMessage }>([
    { what: "output with a gap", honest: [output(0, 0, 10)], lie: output(11, 10, 1) },
    { what: "output twice", honest: [output(0, 0, 10)], lie: output(0, 0, 10) },
    { what: "an offset of the other output", honest: [output(0, 0, 10)], lie: output(10, 10, 1, 2) },
    {
      what: "an offset that is not the output's own",
      honest: [output(0, 0, 10), output(10, 0, 5, 2)],
      lie: output(15, 15, 1),
    },
    { what: "more than the window", honest: [output(0, 0, 100)], lie: output(100, 100, 1) },
    { what: "more than the window at once", honest: [], lie: output(0, 0, 101) },
    { what: "output after its end", honest: [output(0, 0, 1), { type: "end", id: 5, at: 1 }], lie: output(1, 1, 1) },
    { what: "an end before the output", honest: [output(0, 0, 10)], lie: { type: "end", id: 5, at: 11 } },
    { what: "an end within the output", honest: [output(0, 0, 10)], lie: { type: "end", id: 5, at: 9 } },
    { what: "an exit before its output", honest: [output(0, 0, 10)], lie: exit({ at: 11 }) },
    { what: "a second exit with another code", honest: [exit()], lie: exit({ exitCode: 4 }) },
    { what: "a second exit by a signal", honest: [exit()], lie: exit({ exitCode: null, signal: "SIGKILL" }) },
    { what: "input taken that was never sent", honest: [], lie: { type: "stdinAck", id: 5, offset: 1 } },
    { what: "input closed after what was never sent", honest: [], lie: { type: "stdinClosed", id: 5, offset: 1 } },
    { what: "an answer to a request", honest: [], lie: { type: "done", id: 5 } },
    { what: "a greeting", honest: [], lie: { type: "welcome", version: 1, streams: [] } },
  ])("$what is refused", ({ honest, lie }) => {
    const { stream } = makeStream();
    for (const message of honest) stream.take(message);
    expect(() => {
      stream.take(lie);
    }).toThrow(MalformedPayload);
  });

  test("a connection does not exit and has one output", () => {
    const { stream } = makeStream({ kind: "connection" });
    expect(() => {
      stream.take(exit());
    }).toThrow(MalformedPayload);
    expect(() => {
      stream.take(output(0, 0, 1, 2));
    }).toThrow(MalformedPayload);
  });

  test("the same exit again, as after a greeting, is no contradiction", async () => {
    const { stream } = makeStream();
    stream.take(exit());
    stream.take(exit());
    expect(await stream.ended).toEqual(exitReport);
  });
});

describe("the end", () => {
  test("both outputs are counted apart and together", async () => {
    const { stream } = makeStream();
    stream.take(output(0, 0, 3));
    stream.take(output(3, 0, 4, 2));
    stream.take(output(7, 3, 5));
    stream.take(exit({ at: 12 }));
    stream.output.finish();
    const seen: unknown[] = [];
    for await (const { stream: name, data, offset, at } of stream.output)
      seen.push([name, data.byteLength, offset, at]);
    expect(seen).toEqual([
      ["stdout", 3, 0, 0],
      ["stderr", 4, 0, 3],
      ["stdout", 5, 3, 7],
    ]);
  });

  test("input is closed by the exit", async () => {
    const { stream } = makeStream();
    stream.take(exit());
    await expect(stream.input.write(Buffer.from("x"))).rejects.toThrow("the process has ended");
  });

  test("output may go on after the exit, from what the process left behind", () => {
    const { stream } = makeStream();
    stream.take(exit());
    expect(() => {
      stream.take(output(0, 0, 10));
    }).not.toThrow();
  });

  test("a start that the guest refuses reaches every caller, and the stream is forgotten", async () => {
    const { stream, forgotten } = makeStream();
    const error = new SandboxError("spawn_failed", "Cannot exec nothing");
    stream.refuse(error);
    await expect(stream.started).rejects.toBe(error);
    await expect(stream.ended).rejects.toBe(error);
    await expect(stream.output[Symbol.asyncIterator]().next()).rejects.toBe(error);
    expect(forgotten()).toBe(1);
  });

  test("a known end stays known when the sandbox goes", async () => {
    const { stream } = makeStream();
    stream.take(output(0, 0, 10));
    stream.take(exit({ at: 10 }));
    stream.output.finish();
    stream.fail(new Error("the sandbox has ended"));
    expect(await stream.ended).toMatchObject({ exitCode: 3 });
    let bytes = 0;
    for await (const { data } of stream.output) bytes += data.byteLength;
    expect(bytes).toBe(10);
  });
});

describe("release", () => {
  test("it is sent once, and the stream is forgotten", () => {
    const { stream, sent, forgotten } = makeStream();
    stream.release();
    stream.release();
    expect(sent).toEqual([toGuest.RELEASE]);
    expect(forgotten()).toBe(1);
  });

  test("waiting for a process that is released while it lives rejects", async () => {
    const { stream } = makeStream();
    stream.take(output(0, 0, 10));
    const events = stream.output[Symbol.asyncIterator]();
    await events.next();
    const next = events.next().catch((error: unknown) => error);
    stream.release();
    expect(isSandboxError(await next, "invalid_state")).toBe(true);
    await expect(stream.ended).rejects.toThrow("released");
    await expect(stream.input.write(Buffer.from("x"))).rejects.toThrow("released");
  });

  test("nothing is acknowledged after it", () => {
    const { stream, sent } = makeStream();
    stream.take(output(0, 0, 100));
    stream.release();
    stream.output.discard();
    expect(sent).toEqual([toGuest.RELEASE]);
  });
});

describe("after a greeting", () => {
  test("output is requested from where it arrived, whether or not it was read", () => {
    const { stream, frames } = makeStream();
    stream.take(output(0, 0, 40));
    stream.reattach(entry);
    const attach = frames.at(-1);
    expect(attach?.readUInt8(8)).toBe(toGuest.ATTACH);
    expect(attach?.readBigUInt64LE(16)).toBe(40n);
    expect(() => {
      stream.take(output(40, 40, 10));
    }).not.toThrow();
  });

  test("a process that the greeting lists has started", async () => {
    const { stream } = makeStream();
    stream.reattach(entry);
    expect(await stream.started).toBe(77);
  });

  test("input that was closed before the greeting is closed", async () => {
    const { stream, sent } = makeStream();
    stream.reattach({ ...entry, inputClosed: true });
    await expect(stream.input.write(Buffer.from("x"))).rejects.toThrow("closed its end");
    expect(sent).toEqual([toGuest.ATTACH]);
  });

  test("the same end may come again", async () => {
    const { stream } = makeStream();
    stream.take(output(0, 0, 1));
    stream.take({ type: "end", id: 5, at: 1 });
    stream.take(exit({ at: 1 }));
    stream.reattach({ ...entry, state: "exited" });
    stream.take({ type: "end", id: 5, at: 1 });
    stream.take(exit({ at: 1 }));
    expect(await stream.ended).toMatchObject({ exitCode: 3 });
  });
});

describe("signals", () => {
  test.for([
    { signal: "SIGTERM", number: 15, scope: 0 },
    { signal: "SIGKILL", number: 9, scope: 1 },
  ] as const)("$signal goes to scope $scope", ({ signal, number, scope }) => {
    const { stream, frames } = makeStream();
    stream.signal(signal);
    expect(frames[0]?.readUInt8(8)).toBe(toGuest.SIGNAL);
    expect([frames[0]?.readUInt32LE(16), frames[0]?.readUInt32LE(20)]).toEqual([number, scope]);
  });

  test("they are not sent to an ended process, nor to a connection", () => {
    const ended = makeStream();
    ended.stream.take(exit());
    ended.stream.signal("SIGKILL");
    const connection = makeStream({ kind: "connection" });
    connection.stream.signal("SIGKILL");
    expect([ended.sent, connection.sent]).toEqual([[], []]);
  });
});
