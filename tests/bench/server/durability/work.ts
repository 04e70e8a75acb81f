import { isSandboxError, type Atoll, type CommandHandle, type OutputEvent, type Sandbox } from "@atoll/sdk";
import { payloadOf, type Plan } from "./plan.ts";

/** Facts that a client learns and loses when it dies. */
export interface Fact {
  /** The number of output bytes that it has read from the start. */
  read?: number;
  /** The number of input bytes that the server has accepted for good. */
  accepted?: number;
  uploaded?: true;
}

export interface Outcome {
  /** Undefined for an upload. */
  exitCode?: number | null;
  output?: Buffer;
}

export interface Worker {
  client: Atoll;
  sandbox: Sandbox;
  plan: Plan;
  emit: (fact: Fact) => void;
}

const pieceBytes = 16 * 1024;

export function uploadPath({ seed }: Plan): string {
  return `/home/user/up-${seed}/file.bin`;
}

/** Returns the path of a file to which each run of a round's command adds a line. */
export function runsPath({ seed }: Plan): string {
  return `/tmp/runs-${seed}`;
}

/** Does the complete work of a round. */
export async function doWork(worker: Worker): Promise<Outcome> {
  const { sandbox, plan, emit } = worker;
  switch (plan.work) {
    case "exec":
      // A dead client may have started the command, and only a client with its idempotency key can ask for it again.
      return plan.isForeground && plan.victim !== "client" ? runToEnd(worker) : follow(await start(worker), worker, 0);
    case "stdin": {
      const command = await start(worker);
      const [outcome] = await Promise.all([follow(command, worker, 0), sendAll(command, worker)]);
      return outcome;
    }
    case "upload":
      await sandbox.files.write(uploadPath(plan), payloadOf(plan));
      emit({ uploaded: true });
      return {};
  }
}

/** Continues the work of a dead client from the facts that it had reported. */
export async function carryOn(worker: Worker, known: Fact): Promise<Outcome> {
  const { sandbox, plan } = worker;
  if (plan.work === "upload") {
    await assertWholeOrAbsent(worker);
    return known.uploaded === true ? {} : doWork(worker);
  }
  // The key is the same, so a command that the dead client has started, or is about to start, is not started again.
  const command = await start(worker);
  const info = await sandbox.commands.get(command.id);
  const { accepted = 0 } = known;
  if (info.stdinBytes < accepted)
    throw new Error(`the server accepted ${accepted} bytes of input and reports ${info.stdinBytes}`);
  const from = known.read ?? 0;
  const sent = plan.work === "stdin" ? sendRest(command, worker) : undefined;
  const [rest] = await Promise.all([follow(command, worker, from), sent]);
  const whole = await follow(command, worker, 0);
  if (!whole.output.subarray(from).equals(rest.output)) throw new Error("the log differs when it is read again");
  return whole;
}

/** Checks that a file whose writer has died has its complete content, or does not exist. */
async function assertWholeOrAbsent({ sandbox, plan }: Worker): Promise<void> {
  const stored = await sandbox.files.read(uploadPath(plan), { as: "bytes" }).catch((error: unknown) => {
    if (isSandboxError(error, "not_found")) return undefined;
    throw error;
  });
  const expected = payloadOf(plan);
  if (stored !== undefined && !expected.equals(stored)) {
    throw new Error(`a file has ${stored.byteLength} of ${expected.byteLength} bytes`);
  }
}

function scriptOf(plan: Plan): string {
  const mark = `echo ran >> ${runsPath(plan)}`;
  if (plan.work === "stdin") return `${mark}; cat; exit ${plan.exitCode}`;
  const lines = Math.ceil(plan.bytes / 32);
  const pause = `if (i % ${Math.ceil(lines / 4)} == 0) system("sleep 0.02")`;
  const print = `l = "${plan.seed} line " i; while (length(l) < 31) l = l "."; print l`;
  const loop = `for (i = 0; i < ${lines}; i++) { ${pause}; ${print} }`;
  return `${mark}; awk 'BEGIN { ${loop} }' | head -c ${plan.bytes}; exit ${plan.exitCode}`;
}

async function start({ client, sandbox, plan }: Worker): Promise<CommandHandle> {
  const { command } = await client.http.call("runCommand", {
    params: { id: sandbox.id },
    body: { shell: scriptOf(plan), stdin: plan.work === "stdin", background: true },
    idempotencyKey: `round-${plan.seed}`,
  });
  return sandbox.commands.connect(command.id);
}

async function runToEnd(worker: Worker): Promise<Outcome> {
  const { sandbox, plan } = worker;
  const reader = new Reader(worker, 0);
  const { exitCode } = await sandbox.commands.run(scriptOf(plan), {
    onOutput: (event) => reader.take(event),
  });
  return { exitCode, output: reader.output };
}

async function follow(command: CommandHandle, worker: Worker, from: number): Promise<Required<Outcome>> {
  const reader = new Reader(worker, from);
  for await (const event of command.events({ from })) {
    if (event.type === "ended") return { exitCode: event.command.exitCode, output: reader.output };
    reader.take(event);
  }
  throw new Error("the output ended before the command");
}

/** Compares the output while it arrives, so that a client that dies later has seen no difference so far. */
class Reader {
  readonly #chunks: Uint8Array[] = [];
  readonly #expected: Buffer;
  readonly #emit: Worker["emit"];
  #at: number;

  constructor({ plan, emit }: Worker, from: number) {
    this.#expected = payloadOf(plan);
    this.#emit = emit;
    this.#at = from;
  }

  get output(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  take(event: Exclude<OutputEvent, { type: "ended" }>): void {
    if (event.type !== "stdout") throw new Error(`there is ${event.type} in the output`);
    const { data } = event;
    const end = this.#at + data.byteLength;
    if (!this.#expected.subarray(this.#at, end).equals(data)) {
      throw new Error(`the output differs between bytes ${this.#at} and ${end} of ${this.#expected.byteLength}`);
    }
    this.#chunks.push(data);
    this.#at = end;
    this.#emit({ read: end });
  }
}

async function sendAll(command: CommandHandle, worker: Worker): Promise<void> {
  // A client that may be killed sends its input with offsets, so that the next one can continue.
  if (worker.plan.victim === "client") return sendRest(command, worker);
  const payload = payloadOf(worker.plan);
  for (let at = 0; at < payload.byteLength; at += pieceBytes) {
    await command.sendStdin(payload.subarray(at, at + pieceBytes));
  }
  await command.closeStdin();
}

async function sendRest(command: CommandHandle, { client, sandbox, plan, emit }: Worker): Promise<void> {
  const payload = payloadOf(plan);
  const params = { id: sandbox.id, commandId: command.id };
  let { stdinBytes: accepted } = await sandbox.commands.get(command.id);
  while (accepted < payload.byteLength) {
    const bytes = payload.subarray(accepted, accepted + pieceBytes);
    const call = { params, query: { offset: accepted }, bytes, isRepeatable: true, timeoutMs: undefined } as const;
    ({ stdinBytes: accepted } = await client.http.call("writeStdin", call));
    emit({ accepted });
  }
  await sandbox.commands.closeStdin(command.id);
}
