import { createHash } from "node:crypto";
import type { CommandInfo, CommandLine, SandboxForked, SandboxPaused } from "@atoll/protocol";
import { ApiClient, all, readLines, type ApiAnswer } from "../../../support/api-client.ts";
import type { PairMember } from "../server-pair.ts";
import type { Cycle } from "./plan.ts";
import { retryUntilOk } from "./retry.ts";

/** A script that counts lines in memory and prints each one with its number. */
const counter = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";
/** After this number of steps of work, files are overwritten. */
const files = 5;

/** The sandbox of a soak and the content that it must have. */
export class SoakSandbox {
  readonly id: string;
  readonly #command: string;
  readonly #signal: AbortSignal;
  readonly #said: string[] = [];
  readonly #answers: string[] = [];
  readonly #files = new Map<string, Buffer>();

  private constructor(id: string, command: string, signal: AbortSignal) {
    this.id = id;
    this.#command = command;
    this.#signal = signal;
  }

  static async create(member: PairMember, signal: AbortSignal): Promise<SoakSandbox> {
    const api = apiOf(member);
    const { sandbox } = await api.create({ driver: "gvisor", persistent: true });
    const { id } = await api.start(sandbox.id, { shell: counter, stdin: true });
    return new SoakSandbox(sandbox.id, id, signal);
  }

  /** Sends one more line to the process and writes one file. */
  async work(member: PairMember, { seed, bytes }: Cycle): Promise<void> {
    const api = apiOf(member);
    const line = `w${seed}`;
    const offset = this.#said.join("").length;
    await retryUntilOk("input", this.#signal, async () =>
      answerOf(await api.fetch("POST", `${this.#commandPath}/stdin?offset=${offset}`, { body: `${line}\n` })),
    );
    this.#said.push(`${line}\n`);
    this.#answers.push(`${line} ${this.#said.length}\n`);
    const path = `/home/user/file-${this.#said.length % files}`;
    const content = contentOf(seed, bytes);
    await retryUntilOk("file", this.#signal, async () =>
      answerOf(await api.fetch("PUT", `/sandboxes/${this.id}/files?path=${path}`, { body: content })),
    );
    this.#files.set(path, content);
  }

  /** Returns the differences between the sandbox, as this server shows it, and what it must contain. */
  async check(member: PairMember): Promise<string[]> {
    const problems = await this.#checkFiles(member, this.id);
    const api = apiOf(member);
    const expected = this.#answers.join("").length;
    const info = await retryUntilOk("answer of its process", this.#signal, async () => {
      const answer = await api.ask<CommandInfo>("GET", this.#commandPath);
      const { state, stdoutBytes } = answer.body;
      if (state === "running" && stdoutBytes < expected) throw new Error(`${stdoutBytes} bytes, not ${expected}`);
      return answer;
    });
    if (info.stdoutBytes !== expected) problems.push(`${info.stdoutBytes} bytes of output, not ${expected}`);
    if (info.state !== "running") problems.push(`its process is ${info.state}`);
    return problems;
  }

  async pause(member: PairMember): Promise<void> {
    await retryUntilOk("pause", this.#signal, () =>
      apiOf(member).ask<SandboxPaused>("POST", `/sandboxes/${this.id}/pause`, {}),
    );
  }

  /** Tries to pause once and ignores failures. */
  async tryToPause(member: PairMember): Promise<void> {
    await apiOf(member)
      .ask("POST", `/sandboxes/${this.id}/pause`, {})
      .catch(() => undefined);
  }

  /** Makes the sandbox run without changing it. */
  async wake(member: PairMember): Promise<void> {
    await retryUntilOk("wake", this.#signal, () =>
      apiOf(member).ask("POST", `/sandboxes/${this.id}/commands`, { argv: ["/bin/true"] }),
    );
  }

  /** Forks the sandbox, checks the copy and removes it. */
  async fork(member: PairMember): Promise<string[]> {
    const api = apiOf(member);
    const { sandboxes } = await retryUntilOk("fork", this.#signal, () =>
      api.ask<SandboxForked>("POST", `/sandboxes/${this.id}/fork`, { count: 1 }),
    );
    const problems: string[] = [];
    for (const { sandbox } of sandboxes) {
      problems.push(...(await this.#checkFiles(member, sandbox.id)).map((problem) => `copy: ${problem}`));
      await retryUntilOk("end of a copy", this.#signal, () => api.ask("DELETE", `/sandboxes/${sandbox.id}`));
    }
    return problems;
  }

  /** Ends the process, compares its complete output, and kills the sandbox. */
  async finish(member: PairMember): Promise<string[]> {
    const api = apiOf(member);
    await retryUntilOk("end of input", this.#signal, () => api.ask("DELETE", `${this.#commandPath}/stdin`));
    let info: CommandInfo;
    do {
      info = await retryUntilOk("end", this.#signal, () =>
        api.ask<CommandInfo>("GET", `${this.#commandPath}/wait?timeoutMs=10000`),
      );
    } while (info.state === "running");
    const response = await api.fetch("GET", `${this.#commandPath}/output`, {
      headers: { accept: "application/x-ndjson" },
    });
    const lines = await all(readLines<CommandLine>(response));
    const heard = lines.map((line) => (line.type === "stdout" ? line.text : "")).join("");
    const problems: string[] = [];
    if (info.exitCode !== 7) problems.push(`its process ended with ${info.exitCode}`);
    if (heard !== this.#answers.join("")) problems.push(`its output differs: ${heard.slice(-100)}`);
    await retryUntilOk("kill", this.#signal, () => api.ask("DELETE", `/sandboxes/${this.id}`));
    return problems;
  }

  get #commandPath(): string {
    return `/sandboxes/${this.id}/commands/${this.#command}`;
  }

  async #checkFiles(member: PairMember, id: string): Promise<string[]> {
    const problems: string[] = [];
    for (const [path, content] of this.#files) {
      const { bytes } = await retryUntilOk("file", this.#signal, async () => {
        const response = await apiOf(member).fetch("GET", `/sandboxes/${id}/files?path=${path}`);
        if (response.status >= 400) return answerOf<{ bytes: Buffer }>(response);
        const { status, headers } = response;
        return { status, headers, body: { bytes: Buffer.from(await response.arrayBuffer()) } };
      });
      if (!content.equals(bytes)) problems.push(`${path} differs`);
    }
    return problems;
  }
}

async function answerOf<T>(response: Response): Promise<ApiAnswer<T>> {
  const { status, headers } = response;
  return { status, headers, body: (await response.json()) as ApiAnswer<T>["body"] };
}

function apiOf({ server }: PairMember): ApiClient {
  return new ApiClient(server.url, server.key);
}

/** Returns content that follows from the seed and differs between seeds. */
function contentOf(seed: number, bytes: number): Buffer {
  const blocks: Buffer[] = [];
  for (let at = 0; at < bytes; at += 32) blocks.push(createHash("sha256").update(`${seed} ${at}`).digest());
  return Buffer.concat(blocks).subarray(0, bytes);
}
