import { RunCommand, type CommandResult, type RunContent, type RunOnce, type SandboxId } from "@atoll/protocol";
import { commandResult } from "../commands/command-result.ts";
import type { Command } from "../commands/command.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { TypeStripper } from "./type-stripper.ts";

const home = "/home/user";

interface Program {
  file: string;
  code: string;
  argv: readonly string[];
}

/** How each language is run: the file for its code, and the program. */
const languages = {
  python: { file: "main.py", argv: ["python3", "-u", "main.py"] },
  // The file may be of either kind of module; without the flag, older versions decide by the name only.
  javascript: { file: "main.js", argv: ["node", "--experimental-detect-module", "--no-warnings", "main.js"] },
  bash: { file: "main.sh", argv: ["bash", "main.sh"] },
} as const;

/** A command in a sandbox of its own, which `end` removes. */
export class OneOffRun {
  readonly sandboxId: SandboxId;
  readonly command: Command;
  #end: () => Promise<void>;

  private constructor(sandboxId: SandboxId, command: Command, end: () => Promise<void>) {
    this.sandboxId = sandboxId;
    this.command = command;
    this.#end = end;
  }

  /** Starts the command in a sandbox that no client uses. When it rejects, the sandbox is gone. */
  static async start(
    request: RunOnce,
    sandbox: ManagedSandbox,
    { types, end }: { types: TypeStripper; end: () => Promise<void> },
  ): Promise<OneOffRun> {
    try {
      const program = await programOf(request, types);
      const files = sandbox.sandbox.files;
      for (const [path, content] of Object.entries(request.files)) {
        await files.write(path.startsWith("/") ? path : `${home}/${path}`, bytesOf(content));
      }
      if (program !== undefined) await files.write(`${home}/${program.file}`, program.code);
      const command = await sandbox.commands.run(
        RunCommand.parse({
          argv: request.argv ?? program?.argv,
          env: request.env,
          timeoutMs: Math.min(request.timeoutMs, sandbox.facts.profile?.limits.runTimeMs ?? Infinity),
          stdin: request.stdin !== undefined,
        }),
      );
      const run = new OneOffRun(sandbox.id, command, end);
      if (request.stdin !== undefined) run.#feed(request.stdin);
      return run;
    } catch (error) {
      await end();
      throw error;
    }
  }

  /** Waits for the end and removes the sandbox, also when it rejects. */
  async finish(signal?: AbortSignal): Promise<CommandResult> {
    try {
      return await commandResult(this.command, signal);
    } finally {
      await this.#end();
    }
  }

  /** Ends the command if it still runs, and removes the sandbox. It may be called again. */
  async end(): Promise<void> {
    await this.#end();
  }

  /** Writes the input. A program need not read all of it, so failures are ignored. */
  #feed(stdin: RunContent): void {
    this.command
      .writeStdin(bytesOf(stdin))
      .then(() => this.command.closeStdin())
      .catch(() => undefined);
  }
}

function bytesOf(content: RunContent): Buffer {
  return typeof content === "string" ? Buffer.from(content) : Buffer.from(content.base64, "base64");
}

async function programOf({ language, code = "" }: RunOnce, types: TypeStripper): Promise<Program | undefined> {
  if (language === undefined) return undefined;
  if (language !== "typescript") return { ...languages[language], code };
  const stripped = await types.strip(code, `${home}/main.ts`);
  // A syntax error fails as a program does, and not as a request.
  if ("complaint" in stripped) {
    return { file: "main.ts", code, argv: ["sh", "-c", 'printf %s "$1" >&2; exit 1', "sh", stripped.complaint] };
  }
  const { file, argv } = languages.javascript;
  const [node, ...rest] = argv;
  return { file, code: stripped.code, argv: stripped.hasMap ? [node, "--enable-source-maps", ...rest] : argv };
}
