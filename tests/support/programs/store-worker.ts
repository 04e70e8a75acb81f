import { isSandboxError } from "@atoll/protocol";
import { FileObjectStore } from "@atoll/storage";
import type { Task } from "../store-process/store-process.ts";
import { type DiskStep, watchCalls } from "../store-process/watch-calls.ts";

/**
 * A process that uses a store in a directory. Its arguments say what to do, and it reports what it has done in lines of
 * JSON.
 */
const [directory = "", task = "{}"] = process.argv.slice(2);
const store = await FileObjectStore.open(directory);

function report(fact: unknown): void {
  process.stdout.write(`${JSON.stringify(fact)}\n`);
}

async function unlessConflict<T>(attempt: Promise<T>): Promise<T | undefined> {
  try {
    return await attempt;
  } catch (error) {
    if (isSandboxError(error, "conflict")) return undefined;
    throw error;
  }
}

async function count(key: string, times: number): Promise<void> {
  for (let done = 0; done < times;) {
    const got = await store.get(key);
    const next = Buffer.from(String(Number(got?.data.toString() ?? 0) + 1));
    const info = await unlessConflict(store.put(key, next, { if: got?.info.version ?? "absent" }));
    if (info !== undefined) done += 1;
  }
}

/** Counts by unconditional writes, while an object that is created under a condition serves as a lock. */
async function countLocked(key: string, times: number): Promise<void> {
  for (let done = 0; done < times;) {
    const lock = await unlessConflict(store.put(`${key}/lock`, Buffer.from("mine"), { if: "absent" }));
    if (lock === undefined) continue;
    const got = await store.get(`${key}/counter`);
    await store.put(`${key}/counter`, Buffer.from(String(Number(got?.data.toString() ?? 0) + 1)));
    await store.remove(`${key}/lock`, { if: lock.version });
    done += 1;
  }
}

async function claim(keys: readonly string[], name: string): Promise<void> {
  const won: string[] = [];
  for (const key of keys) {
    const info = await unlessConflict(store.put(key, Buffer.from(name), { if: "absent" }));
    if (info !== undefined) won.push(key);
  }
  report({ won });
}

/** Stores increasing numbers without end and reports each one when it is stored. */
async function writeOn(key: string, path: string, sizeBytes: number, sha256: string): Promise<void> {
  for (let number = 1; ; number += 1) {
    await store.put(`${key}/number`, Buffer.from(String(number)));
    await store.upload(`${key}/big/${number % 2}`, path, { sizeBytes, sha256 });
    if (number % 3 === 0) await store.remove(`${key}/big/0`);
    report({ number });
  }
}

async function change(key: string, kind: "create" | "replace" | "remove", content: string): Promise<void> {
  if (kind === "create") await store.put(key, Buffer.from(content), { if: "absent" });
  if (kind === "replace") await store.put(key, Buffer.from(content));
  if (kind === "remove") await store.remove(key);
}

/** Writes until the disk is full, and reports the errors and what the store then contains. */
async function fill(path: string, sizeBytes: number, sha256: string): Promise<void> {
  const refusals: string[] = [];
  const refused = (error: unknown): undefined => {
    refusals.push(isSandboxError(error) ? error.code : String(error));
  };
  await store.upload("big", path, { sizeBytes, sha256 }).catch(refused);
  const block = Buffer.alloc(64 << 10, 7);
  let kept = 0;
  while ((await store.put(`blocks/${kept}`, block).catch(refused)) !== undefined) kept += 1;
  await store.put("blocks/0", block).catch(refused);
  let listed = 0;
  for await (const info of store.list("")) {
    listed += 1;
    if ((await store.get(info.key))?.data.equals(block) !== true) throw new Error(`${info.key} has the wrong content`);
  }
  await store.remove("blocks/1");
  await store.remove("blocks/2");
  const worksAgain = (await store.put("more", block, { if: "absent" })).sizeBytes === block.length;
  report({ filled: { refusals, kept, listed, worksAgain } });
}

/** Makes this process kill itself right before the given call, of those that change or flush something on disk. */
async function dieBefore(step: number): Promise<void> {
  let steps = 0;
  const count = (): void => {
    if (steps === step) {
      process.kill(process.pid, "SIGKILL");
      // The signal may take a moment, in which nothing may happen.
      stop();
    }
    steps += 1;
  };
  await watchCalls(count, () => {});
}

/** Blocks the thread for ever, like a process that was stopped in the middle of its work. */
function stop(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

async function work(todo: Task): Promise<void> {
  switch (todo.do) {
    case "count":
      return count(todo.key, todo.times);
    case "lock":
      return countLocked(todo.key, todo.times);
    case "claim":
      return claim(todo.keys, todo.name);
    case "write-on":
      return writeOn(todo.key, todo.path, todo.sizeBytes, todo.sha256);
    case "change":
      await dieBefore(todo.step);
      return change(todo.key, todo.kind, todo.content);
    case "record": {
      const steps: DiskStep[] = [];
      await watchCalls(
        () => {},
        (step) => steps.push(step),
      );
      await change(todo.key, todo.kind, todo.content);
      report({ steps });
      return undefined;
    }
    case "fill":
      return fill(todo.path, todo.sizeBytes, todo.sha256);
    case "hold": {
      const onProgress = (storedBytes: number): void => {
        report({ storedBytes });
        stop();
      };
      await store.upload(todo.key, todo.path, { sizeBytes: todo.sizeBytes, sha256: todo.sha256, onProgress });
    }
  }
}

await work(JSON.parse(task));
report({ done: true });
await store.close();
