import type { RunnerSandbox } from "../client/sandbox-client.ts";
import type { CommandResult, CommandSpec, OutputFile } from "../models/command.ts";

/** What the code of a stage works with. Every command that it runs becomes part of the result of the stage. */
export interface StageContext {
  readonly sandbox: RunnerSandbox;
  /** The work tree, inside. */
  readonly workdir: string;
  /** A directory on the host for files on their way in or out, removed with the session. */
  readonly scratch: string;
  readonly signal: AbortSignal;
  /** Runs a command to its end, whatever the end is. Its environment is that of the session and what it adds. */
  run(command: CommandSpec): Promise<CommandResult>;
  /** Runs a command that has to succeed; otherwise the stage fails with the reason. */
  runChecked(command: CommandSpec, purpose: string): Promise<CommandResult>;
  /** The stored text of an output: at most `maxBytes` of its end. */
  readOutput(output: OutputFile, maxBytes?: number): Promise<string>;
  /** Writes a text file inside, with the directories above it, owned by `user`. */
  writeFile(path: string, content: string, mode?: number): Promise<void>;
  /** Text for a person who watches. */
  note(line: string): void;
}

/** Why a stage cannot go on. `blame` decides the verdict: what is not the prediction's is never counted against it. */
export class StageFailure extends Error {
  readonly blame: "infrastructure" | "environment" | "prediction" | "timeout";

  constructor(blame: StageFailure["blame"], message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "StageFailure";
    this.blame = blame;
  }
}
