import { rm } from "node:fs/promises";
import {
  CreateSandbox,
  RunCommand,
  type CreateSandboxInput,
  type RunCommandInput,
  type SandboxId,
} from "@atoll/protocol";
import { SandboxManager, type Command, type SandboxManagerOptions } from "@atoll/server";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { copyHostScan } from "./host-scan.ts";
import { makeDataDir } from "./test-root.ts";

/** A manager on a new data directory. `dispose` kills every sandbox and removes the directory. */
export interface TestManager {
  manager: SandboxManager;
  dataDir: string;
  dispose(): Promise<void>;
}

export async function openTestManager(options: Partial<SandboxManagerOptions> = {}): Promise<TestManager> {
  const dataDir = options.dataDir ?? (await makeDataDir());
  copyHostScan(dataDir);
  const manager = await SandboxManager.open({ guestPath: guestBinaryPath(), ...options, dataDir });
  return {
    manager,
    dataDir,
    dispose: async () => {
      await manager.shutdown({ killAll: true });
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

export async function createIn(manager: SandboxManager, request: CreateSandboxInput = {}): Promise<SandboxId> {
  const { sandbox } = await manager.create(CreateSandbox.parse({ driver: "local", ...request }), { keyId: "test" });
  return sandbox.id;
}

export function start(manager: SandboxManager, id: SandboxId, command: string | RunCommandInput): Promise<Command> {
  return manager.run(id, RunCommand.parse(typeof command === "string" ? { shell: command } : command));
}

/** Returns the text of a command's output from a byte on, and the number of bytes that the log no longer had. */
export async function readAll(command: Command, from = 0): Promise<{ text: string; droppedBytes: number }> {
  const chunks: Buffer[] = [];
  let droppedBytes = 0;
  for await (const piece of command.follow({ from })) {
    if (piece.type === "dropped") droppedBytes += piece.bytes;
    else chunks.push(piece.data);
  }
  return { text: Buffer.concat(chunks).toString("latin1"), droppedBytes };
}
