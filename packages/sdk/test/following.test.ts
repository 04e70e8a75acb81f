import { Atoll, Sandbox } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, test } from "vitest";
import { faulty } from "./support/faulty-connection.ts";

const reason = new Error("seen enough");

/**
 * Makes a sandbox whose commands say "ready" and end with their input. `sent` has the types of the messages that its
 * client sent over the socket.
 */
async function makeSandbox(): Promise<{ mock: MockServer; sandbox: Sandbox; sent: string[]; client: Atoll }> {
  const mock = new MockServer();
  mock.onCommand("talk", async ({ stdin, stdout }) => {
    stdout("ready ");
    for await (const piece of stdin) stdout(piece);
  });
  const sent: string[] = [];
  const webSocket = faulty(mock.connection.webSocket, () => ({
    onSend: (message) => {
      if (typeof message === "string") sent.push((JSON.parse(message) as { type: string }).type);
      return "pass";
    },
  }));
  const client = new Atoll({ ...mock.connection, webSocket });
  return { mock, sandbox: await Sandbox.create({ client }), sent, client };
}

const talk = { background: true, stdin: true } as const;

test("a wait whose signal has aborted follows nothing, and a later error does not end the program", async () => {
  const { sandbox, sent, mock, client } = await makeSandbox();
  const handle = await sandbox.commands.run("talk", talk);
  await expect(handle.wait({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  mock.stop();
  client.close();
  expect(sent).toEqual([]);
});

test("a wait that is aborted stops following; another one starts again and gets everything", async () => {
  const { sandbox, sent } = await makeSandbox();
  const handle = await sandbox.commands.run("talk", talk);
  const stop = new AbortController();
  const waiting = handle.wait({ signal: stop.signal });
  await expect.poll(() => sent).toContain("follow");
  stop.abort(reason);
  await expect(waiting).rejects.toBe(reason);
  await expect.poll(() => sent).toContain("close");
  const result = handle.wait();
  await handle.sendStdin("go");
  await handle.closeStdin();
  expect((await result).stdout).toBe("ready go");
});

test("of two waiting callers, one can leave", async () => {
  const { sandbox, sent } = await makeSandbox();
  const handle = await sandbox.commands.run("talk", talk);
  const stop = new AbortController();
  const leaving = handle.wait({ signal: stop.signal });
  const staying = handle.wait();
  stop.abort(reason);
  await expect(leaving).rejects.toBe(reason);
  await handle.closeStdin();
  expect((await staying).stdout).toBe("ready ");
  expect(sent.filter((type) => type === "follow")).toHaveLength(1);
});

test.for(["run", "connect", "terminal"] as const)("the signal of a %s ends the calls of its callbacks", async (way) => {
  const { sandbox, sent } = await makeSandbox();
  const stop = new AbortController();
  const seen: string[] = [];
  const see = (piece: string | Uint8Array) =>
    void seen.push(typeof piece === "string" ? piece : new TextDecoder().decode(piece));
  const options = { signal: stop.signal, onStdout: see };
  const { id } =
    way === "terminal"
      ? await sandbox.pty.create({ argv: ["talk"], onData: see, signal: stop.signal })
      : await sandbox.commands.run("talk", way === "run" ? { ...talk, ...options } : talk);
  if (way === "connect") await sandbox.commands.connect(id, options);
  await expect.poll(() => seen).toEqual(["ready "]);
  stop.abort(reason);
  await expect.poll(() => sent).toContain("close");
  await sandbox.commands.sendStdin(id, "more");
  await sandbox.commands.closeStdin(id);
  await expect.poll(async () => (await sandbox.commands.get(id)).state).toBe("exited");
  expect(seen).toEqual(["ready "]);
});

test("a waiting caller gets the whole result, although the callbacks have ended", async () => {
  const { sandbox } = await makeSandbox();
  const stop = new AbortController();
  const seen: string[] = [];
  const handle = await sandbox.commands.run("talk", {
    ...talk,
    signal: stop.signal,
    onStdout: (text) => void seen.push(text),
  });
  const result = handle.wait();
  await expect.poll(() => seen).toEqual(["ready "]);
  stop.abort(reason);
  await handle.sendStdin("more");
  await handle.closeStdin();
  expect((await result).stdout).toBe("ready more");
  expect(seen).toEqual(["ready "]);
});

test("each piece of input arrives, and no channel stays open after its end", async () => {
  const { sandbox, sent } = await makeSandbox();
  const handle = await sandbox.commands.run("talk", talk);
  for (const piece of ["one ", "two "]) {
    await handle.sendStdin(piece);
    await expect.poll(() => sent.at(-1)).toBe("close");
  }
  await handle.closeStdin();
  await expect.poll(() => sent.slice(-2)).toEqual(["stdin_end", "close"]);
  expect((await handle.wait()).stdout).toBe("ready one two ");
});

test("closing a handle closes its channels, and the command goes on", async () => {
  const { sandbox, sent } = await makeSandbox();
  const seen: string[] = [];
  const handle = await sandbox.commands.run("talk", { ...talk, onStdout: (text) => void seen.push(text) });
  const waiting = handle.wait();
  waiting.catch(() => undefined);
  const events = handle.events();
  expect((await events.next()).value).toMatchObject({ text: "ready " });
  const next = events.next();
  next.catch(() => undefined);
  await expect.poll(() => seen).toEqual(["ready "]);
  {
    await using _closed = handle;
  }
  const closed = { code: "invalid_state", message: expect.stringContaining("handle was closed") as string };
  await expect(waiting).rejects.toMatchObject(closed);
  await expect(next).rejects.toMatchObject(closed);
  await expect(handle.wait()).rejects.toMatchObject(closed);
  await expect(handle.events().next()).rejects.toMatchObject(closed);
  await expect(handle.sendStdin("x")).rejects.toMatchObject(closed);
  expect(sent.filter((type) => type === "close")).toHaveLength(2);
  const again = await sandbox.commands.connect(handle.id);
  expect(again.command.state).toBe("running");
  await again.closeStdin();
  expect((await again.wait()).exitCode).toBe(0);
});
