import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { FrameDecoder } from "../../src/guest/decoder.ts";
import { encodeFrame, protocolConstants, toGuest, tornFramePadding } from "../../src/guest/frames.ts";
import { parseGuestFrame, type GuestMessage, type StreamEntry } from "../../src/guest/messages.ts";
import { encodeSpawn, type GuestSpawn } from "../../src/guest/requests.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { dyingWithTests, guestProgram, jailed, SanitizerReports, type GuestBuild } from "./guest-program.ts";
import { StreamLog } from "./guest-stream-log.ts";

export type HostFrameName = keyof typeof toGuest;

interface StartOptions {
  build?: GuestBuild;
  greet?: boolean;
  jailIn?: string;
}

/** The user who runs the tests: a guest that is not root can start processes only as itself. */
export const ownUser = String(process.getuid?.() ?? 0);

const untilMs = 120_000;

/**
 * The guest as a plain process of this machine, without a sandbox, and a host that sends exactly what a test wants. The
 * engine's own code decodes everything that the guest sends.
 */
export class NativeGuest implements AsyncDisposable {
  readonly streams = new Map<number, StreamLog>();
  /** Answers to requests, by id. */
  readonly answers = new Map<number, GuestMessage>();
  readonly asked: number[] = [];
  entries: StreamEntry[] = [];
  welcomes = 0;
  receivedBytes = 0;
  /** Whether output is acknowledged as it comes. */
  acknowledges = true;
  /**
   * Whether streams are checked against the host's requests, which makes no sense for a host that sends random frames.
   */
  followsStreams = true;
  #child: ChildProcess;
  #decoder = new FrameDecoder(randomBytes(16));
  #reports: SanitizerReports;
  #lastId = 0;
  #failure: Error | undefined;
  #wake = new Set<() => void>();

  private constructor(child: ChildProcess, reports: SanitizerReports) {
    this.#child = child;
    this.#reports = reports;
    child.stdin?.on("error", () => undefined);
    child.stdout?.on("data", (chunk: Buffer) => {
      this.#receive(chunk);
    });
    child.once("exit", () => {
      this.#notify();
    });
  }

  /** Starts a guest and, by default, greets it. With `jailIn`, a directory, it can do no harm. */
  static async start({ build = "sanitized", greet = true, jailIn }: StartOptions = {}): Promise<NativeGuest> {
    const program = await guestProgram(build);
    const reports = new SanitizerReports();
    const [command, ...args] = dyingWithTests(jailIn === undefined ? [program] : jailed(program, jailIn));
    const child = spawn(command, [...args, "init"], {
      stdio: ["pipe", "pipe", "ignore"],
      env: { ...process.env, ...reports.environment },
    });
    const guest = new NativeGuest(child, reports);
    if (greet) await guest.hello();
    return guest;
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("The guest was not started");
    return this.#child.pid;
  }

  /** Resident memory in bytes. */
  get memoryBytes(): number {
    const line = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${this.pid}/status`, "utf8"));
    return Number(line?.[1]) * 1024;
  }

  /** The number of bytes that were sent and that the guest has not taken, except those in the pipe. */
  get unsentBytes(): number {
    return this.#child.stdin?.writableLength ?? 0;
  }

  /**
   * The number of its open descriptors; 0 where only root may look, because a guest hides them from the processes of
   * its sandbox.
   */
  get descriptorCount(): number {
    return ownUser === "0" ? readdirSync(`/proc/${this.pid}/fd`).length : 0;
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** What the sanitizers found. */
  get report(): string {
    return this.#reports.read();
  }

  raw(bytes: Uint8Array): void {
    this.#child.stdin?.write(bytes);
  }

  send(name: HostFrameName, id: number, payload: Uint8Array = Buffer.alloc(0)): void {
    this.raw(encodeFrame(toGuest[name], id, payload));
  }

  nextId(): number {
    this.#lastId += 1;
    return this.#lastId;
  }

  /** Leaves the guest's output in its pipe, like a host that is dead or busy. */
  pauseReading(): void {
    this.#child.stdout?.pause();
  }

  resumeReading(): void {
    this.#child.stdout?.resume();
  }

  async hello({ padded = false, version }: { padded?: boolean; version?: number } = {}): Promise<StreamEntry[]> {
    const nonce = randomBytes(16);
    const before = this.welcomes;
    this.#decoder.expectWelcome(nonce);
    if (padded) this.raw(tornFramePadding);
    this.send("HELLO", 0, helloPayload(nonce, version));
    await this.until(() => this.welcomes > before);
    return this.entries;
  }

  /** Asks the guest as a whole and waits for its answer. */
  async ask(name: HostFrameName, payload: Uint8Array = Buffer.alloc(0)): Promise<GuestMessage> {
    const id = this.nextId();
    this.send(name, id, payload);
    await this.until(() => this.answers.has(id));
    const answer = this.answers.get(id);
    if (answer === undefined) throw new Error("There is no answer");
    this.answers.delete(id);
    return answer;
  }

  /** Resolves when everything sent before was handled. */
  async settle(): Promise<void> {
    await this.ask("PING");
  }

  spawn(argv: string[], parts: Partial<GuestSpawn> = {}): number {
    const id = this.nextId();
    this.send("SPAWN", id, spawnPayload(argv, parts));
    return id;
  }

  stream(id: number): StreamLog {
    const known = this.streams.get(id);
    if (known !== undefined) return known;
    const stream = new StreamLog();
    this.streams.set(id, stream);
    return stream;
  }

  /** Waits for the end of a process and of its output, or for its failure, and lets the guest forget it. */
  async finish(id: number): Promise<StreamLog> {
    const stream = this.stream(id);
    await this.until(() => stream.isOver);
    if (stream.failed === undefined) this.send("RELEASE", id);
    return stream;
  }

  run(argv: string[], parts: Partial<GuestSpawn> = {}): Promise<StreamLog> {
    return this.finish(this.spawn(argv, parts));
  }

  shell(script: string, parts: Partial<GuestSpawn> = {}): Promise<StreamLog> {
    return this.run(["/bin/sh", "-c", script], parts);
  }

  sendPosition(name: "ACK" | "ATTACH" | "STDIN_EOF", id: number, position: number | bigint): void {
    this.send(name, id, new PayloadWriter().u64(position).finish());
  }

  stdin(id: number, offset: number, data: Uint8Array | string): void {
    this.send("STDIN", id, new PayloadWriter().u64(offset).bytes(Buffer.from(data)).finish());
  }

  signal(id: number, signal: number, scope = 0): void {
    this.send("SIGNAL", id, new PayloadWriter().u32(signal).u32(scope).finish());
  }

  /** Sends all of it, within the window, and ends the input. */
  async feed(id: number, data: Buffer): Promise<void> {
    const stream = this.stream(id);
    const { MAX_DATA, STDIN_WINDOW } = protocolConstants;
    for (let offset = 0; offset < data.byteLength; offset += MAX_DATA) {
      await this.until(() => offset + MAX_DATA - stream.stdinAckedTo <= STDIN_WINDOW || stream.isOver);
      this.stdin(id, offset, data.subarray(offset, offset + MAX_DATA));
    }
    this.sendPosition("STDIN_EOF", id, data.byteLength);
  }

  /** Rejects when the guest dies, when it breaks the protocol, or when `check` stays false. */
  async until(check: () => boolean): Promise<void> {
    const timeout = AbortSignal.timeout(untilMs);
    while (!check()) {
      if (this.#failure !== undefined) throw this.#failure;
      if (!this.isAlive) throw new Error(`The guest is dead\n${this.report}`);
      if (timeout.aborted) throw new Error(`It did not come to that: ${check.toString()}`);
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#wake.delete(wake);
          timeout.removeEventListener("abort", wake);
          resolve();
        };
        this.#wake.add(wake);
        timeout.addEventListener("abort", wake, { once: true });
      });
    }
  }

  /** Throws when the guest died by itself or the sanitizers found something. */
  async [Symbol.asyncDispose](): Promise<void> {
    const wasAlive = this.isAlive;
    if (wasAlive) {
      this.#child.kill("SIGKILL");
      await once(this.#child, "exit");
    }
    const report = this.report;
    this.#reports[Symbol.dispose]();
    if (!wasAlive || report !== "") throw new Error(`The guest did not survive this\n${report}`);
    if (this.#failure !== undefined) throw this.#failure;
  }

  #receive(chunk: Buffer): void {
    this.receivedBytes += chunk.byteLength;
    try {
      for (const frame of this.#decoder.push(chunk)) this.#take(parseGuestFrame(frame));
    } catch (error) {
      this.#failure ??= error instanceof Error ? error : new Error(String(error));
    }
    this.#notify();
  }

  #take(message: GuestMessage): void {
    if (message.type === "welcome") {
      this.entries = message.streams;
      this.welcomes += 1;
      return;
    }
    if (isAnswer(message)) this.answers.set(message.id, message);
    if (message.type === "connect") this.asked.push(message.id);
    if (!this.followsStreams) return;
    if (message.type === "failed" ? this.streams.has(message.id) : !isAnswer(message)) {
      this.stream(message.id).take(message);
    }
    if (message.type === "output" && this.acknowledges) {
      this.sendPosition("ACK", message.id, this.stream(message.id).at);
    }
  }

  #notify(): void {
    for (const wake of this.#wake) wake();
  }
}

function isAnswer({ type }: GuestMessage): boolean {
  return ["failed", "done", "counted", "heldBy", "nodes", "ready", "pong"].includes(type);
}

export function helloPayload(nonce: Uint8Array, version: number = protocolConstants.VERSION): Buffer {
  return new PayloadWriter().u32(version).bytes(nonce).u64(0).finish();
}

/** Encodes the payload of a SPAWN of the tests' own user in `/`, with an empty environment. */
export function spawnPayload(argv: string[], parts: Partial<GuestSpawn> = {}): Buffer {
  const spawn = { env: {}, cwd: "/", user: ownUser, stdin: false, graceMs: 0, windowBytes: 0, ...parts, argv };
  const frame = encodeSpawn(1, spawn);
  return frame.subarray(16, frame.byteLength - 4);
}
