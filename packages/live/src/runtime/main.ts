import { Console } from "node:console";
import { Writable } from "node:stream";
import { servePorts } from "../isolation/port-relay.ts";
import { encodeFrame, FrameReader } from "../wire/frames.ts";
import { folderUrl } from "./registry.ts";
import { Runtime } from "./runtime.ts";

/**
 * The program of an app's process: frames come on stdin and go to stdout, and whatever the app prints becomes messages.
 * Its arguments are the folder of the app and, where the app has no network, the socket that its ports are reached by.
 */
const maxFrameBytes = 64 * 1024 * 1024;
const maxLogBytes = 64 * 1024;

const write = process.stdout.write.bind(process.stdout);
const send = (message: unknown): void => void write(encodeFrame(message, maxFrameBytes));

const log = (level: "log" | "warn" | "error", text: string): void =>
  send({ t: "log", level, text: text.slice(0, maxLogBytes) });

/** A stream for people: what is written to it becomes a message, line by line as it comes. */
const lines = (level: "log" | "error"): Writable =>
  new Writable({
    decodeStrings: false,
    write(chunk: string | Buffer, _encoding, done) {
      log(level, String(chunk).replace(/\n$/, ""));
      done();
    },
  });
globalThis.console = new Console({ stdout: lines("log"), stderr: lines("error") });
process.stdout.write = (chunk: unknown) => {
  log("log", Buffer.isBuffer(chunk) ? chunk.toString() : String(chunk));
  return true;
};

const [folder = process.cwd(), portsSocket] = process.argv.slice(2);
if (portsSocket !== undefined) servePorts(portsSocket);
const runtime = new Runtime(folderUrl(folder), send);
const reader = new FrameReader(maxFrameBytes);

process.on("uncaughtException", (error) => log("error", `uncaught: ${error.stack ?? String(error)}`));
process.on("unhandledRejection", (reason) =>
  log("error", `unhandled rejection: ${reason instanceof Error ? (reason.stack ?? reason.message) : String(reason)}`),
);

process.stdin.on("data", (chunk: Buffer) => {
  for (const message of reader.push(chunk) as { n: number; t: string; params: unknown }[]) {
    void runtime.answer(message.n, message.t, message.params).then((reply) => {
      send(reply);
      if (message.t === "stop") process.stdin.destroy();
    });
  }
});
// Without its host an app has no purpose.
process.stdin.on("end", () => process.exit(0));
send({ t: "hello", protocol: 1, node: process.version, pid: process.pid });
