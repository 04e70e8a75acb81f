import { EventEmitter, once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { deadlineAfter } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { LiveManager } from "../../src/manager/live-manager.ts";

const folder = fileURLToPath(new URL("../../../../examples/apps/chat", import.meta.url));
const texts = readFileSync(`${folder}/src/texts.ts`, "utf8");

let stateDir: string;
beforeAll(() => {
  stateDir = mkdtempSync(join(tmpdir(), "atoll-chat-"));
});
afterAll(() => rmSync(stateDir, { recursive: true, force: true }));

/** A person in the chat, with all that they have read. */
class Person implements Disposable {
  readonly read: string[] = [];
  readonly #socket: WebSocket;
  readonly #incoming = new EventEmitter();
  isConnected = true;

  constructor(url: string) {
    this.#socket = new WebSocket(url);
    this.#socket.on("message", (data: Buffer) => {
      this.read.push(data.toString());
      this.#incoming.emit("text");
    });
    this.#socket.on("close", () => (this.isConnected = false));
    this.#socket.on("error", () => (this.isConnected = false));
  }

  say(text: string): void {
    this.#socket.send(text);
  }

  async sees(text: string): Promise<void> {
    const signal = deadlineAfter(20_000);
    while (!this.read.includes(text)) await once(this.#incoming, "text", { signal });
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }
}

async function start(manager: LiveManager): Promise<() => string> {
  await manager.create("chat", folder, { typeCheck: "off" });
  return () => {
    const [address] = manager.get("chat").ports;
    return `ws://${address?.host}:${address?.hostPort}`;
  };
}

test("people in the example chat stay connected, and in their rooms, through 100 reloads", async () => {
  await using manager = new LiveManager({ stateDir });
  const url = await start(manager);
  using ada = new Person(url());
  using alan = new Person(url());
  for (const [person, name] of [
    [ada, "Ada"],
    [alan, "Alan"],
  ] as const) {
    await expect.poll(() => person.read.some((text) => text.startsWith("Hello guest"))).toBe(true);
    person.say(`/name ${name}`);
    person.say("/join engines");
    await person.sees(`${name} is now in #engines`);
  }
  for (let reload = 1; reload <= 100; reload += 1) {
    // The text is sent before the reload ends, so that messages arrive in all of its phases.
    alan.say(`before ${reload}`);
    const sources = new Map([["src/texts.ts", texts.replace("${name}: ${text}", `\${name} (${reload}): \${text}`)]]);
    expect(await manager.hotReload("chat", { sources })).toMatchObject({ result: "reloaded" });
    alan.say(`after ${reload}`);
    await ada.sees(`#engines Alan (${reload}): after ${reload}`);
  }
  const said = ada.read.flatMap((text) => /Alan.*: (.*)$/.exec(text)?.[1] ?? []);
  expect(said).toEqual(Array.from({ length: 100 }, (_, at) => [`before ${at + 1}`, `after ${at + 1}`]).flat());
  expect([ada.isConnected, alan.isConnected]).toEqual([true, true]);
  ada.say("/who");
  await ada.sees("In #engines: Ada, Alan");
});

test("the server of the example chat outlasts a change of its code, and opens again with a new process", async () => {
  await using manager = new LiveManager({ stateDir });
  const url = await start(manager);
  using ada = new Person(url());
  await expect.poll(() => ada.read.length).toBe(1);
  const gateway = readFileSync(`${folder}/src/gateway.ts`, "utf8");
  const sources = new Map([["src/gateway.ts", gateway.replace("?.send(text)", "?.send(`> ${text}`)")]]);
  await manager.hotReload("chat", { sources });
  ada.say("hello");
  await ada.sees("> #lobby guest-1: hello");
  await manager.restart("chat");
  await expect.poll(() => ada.isConnected).toBe(false);
  using alan = new Person(url());
  await expect.poll(() => alan.read.length).toBe(1);
  alan.say("/who");
  // The count of guests went on, and Ada, who is gone, is forgotten.
  await alan.sees("> In #lobby: guest-2");
});
