import { createHash } from "node:crypto";
import type { CommandInfo, CommandLine, SandboxForked, SandboxPaused } from "@atoll/protocol";
import { ApiClient, all, readLines, type ApiAnswer } from "../../../support/api-client.ts";
import type { Place } from "../server-pair.ts";
import type { Cycle } from "./plan.ts";
import { insist } from "./retry.ts";

/** Counts in memory, and says each line again with its number. */
const counter = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";
/** Files are written over after so many pieces of work. */
const files = 5;

/** The sandbox of a soak, and what must be found in it. */
export class Subject {
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

  static async create(place: Place, signal: AbortSignal): Promise<Subject> {
    const api = apiOf(place);
    const { sandbox } = await api.create({ driver: "gvisor", persistent: true });
    const { id } = await api.start(sandbox.id, { shell: counter, stdin: true });
    return new Subject(sandbox.id, id, signal);
  }

  /** Says one line more to the process, and writes a file. */
  async work(place: Place, { seed, bytes }: Cycle): Promise<void> {
    const api = apiOf(place);
    const line = `w${seed}`;
    const offset = this.#said.join("").length;
    await insist("input", this.#signal, async () =>
      answerOf(await api.fetch("POST", `${this.#commandPath}/stdin?offset=${offset}`, { body: `${line}\n` })),
    );
    this.#said.push(`${line}\n`);
    this.#answers.push(`${line} ${this.#said.length}\n`);
    const path = `/home/user/file-${this.#said.length % files}`;
    const content = contentOf(seed, bytes);
    await insist("file", this.#signal, async () =>
      answerOf(await api.fetch("PUT", `/sandboxes/${this.id}/files?path=${path}`, { body: content })),
    );
    this.#files.set(path, content);
  }

  /** What is wrong in it, as this server shows it. */
  async look(place: Place): Promise<string[]> {
    const problems = await this.#lookAtFiles(place, this.id);
    const api = apiOf(place);
    const expected = this.#answers.join("").length;
    const info = await insist("answer of its process", this.#signal, async () => {
      const answer = await api.ask<CommandInfo>("GET", this.#commandPath);
      const { state, stdoutBytes } = answer.body;
      if (state === "running" && stdoutBytes < expected) throw new Error(`${stdoutBytes} bytes, not ${expected}`);
      return answer;
    });
    if (info.stdoutBytes !== expected) problems.push(`${info.stdoutBytes} bytes of output, not ${expected}`);
    if (info.state !== "running") problems.push(`its process is ${info.state}`);
    return problems;
  }

  async pause(place: Place): Promise<void> {
    await insist("pause", this.#signal, () =>
      apiOf(place).ask<SandboxPaused>("POST", `/sandboxes/${this.id}/pause`, {}),
    );
  }

  /** Once, whatever becomes of it. */
  async tryToPause(place: Place): Promise<void> {
    await apiOf(place)
      .ask("POST", `/sandboxes/${this.id}/pause`, {})
      .catch(() => undefined);
  }

  /** Has it run, without a change to it. */
  async wake(place: Place): Promise<void> {
    await insist("wake", this.#signal, () =>
      apiOf(place).ask("POST", `/sandboxes/${this.id}/commands`, { argv: ["/bin/true"] }),
    );
  }

  /** Makes a copy, looks at it and removes it. */
  async fork(place: Place): Promise<string[]> {
    const api = apiOf(place);
    const { sandboxes } = await insist("fork", this.#signal, () =>
      api.ask<SandboxForked>("POST", `/sandboxes/${this.id}/fork`, { count: 1 }),
    );
    const problems: string[] = [];
    for (const { sandbox } of sandboxes) {
      problems.push(...(await this.#lookAtFiles(place, sandbox.id)).map((problem) => `copy: ${problem}`));
      await insist("end of a copy", this.#signal, () => api.ask("DELETE", `/sandboxes/${sandbox.id}`));
    }
    return problems;
  }

  /** Ends the process and compares all that it ever said; then ends the sandbox. */
  async finish(place: Place): Promise<string[]> {
    const api = apiOf(place);
    await insist("end of input", this.#signal, () => api.ask("DELETE", `${this.#commandPath}/stdin`));
    let info: CommandInfo;
    do {
      info = await insist("end", this.#signal, () =>
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
    await insist("kill", this.#signal, () => api.ask("DELETE", `/sandboxes/${this.id}`));
    return problems;
  }

  get #commandPath(): string {
    return `/sandboxes/${this.id}/commands/${this.#command}`;
  }

  async #lookAtFiles(place: Place, id: string): Promise<string[]> {
    const problems: string[] = [];
    for (const [path, content] of this.#files) {
      const { bytes } = await insist("file", this.#signal, async () => {
        const response = await apiOf(place).fetch("GET", `/sandboxes/${id}/files?path=${path}`);
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

function apiOf({ server }: Place): ApiClient {
  return new ApiClient(server.url, server.key);
}

/** The same for the same seed, and for no other. */
function contentOf(seed: number, bytes: number): Buffer {
  const blocks: Buffer[] = [];
  for (let at = 0; at < bytes; at += 32) blocks.push(createHash("sha256").update(`${seed} ${at}`).digest());
  return Buffer.concat(blocks).subarray(0, bytes);
}
