import type { CommandInfo, RunCommandInput, SandboxId } from "@atoll/protocol";
import type { Http } from "../http/http.ts";

/**
 * Starts a command in the background. If the caller aborts, or its time is over, before the command's id arrives, the
 * command is killed.
 */
export async function startCommand(
  http: Http,
  sandboxId: SandboxId,
  body: RunCommandInput,
  signal: AbortSignal | undefined,
): Promise<CommandInfo> {
  const { command } = await http.make(
    "runCommand",
    { params: { id: sandboxId }, body: { ...body, background: true }, signal },
    ({ command: { id: commandId } }) =>
      http.call("signalCommand", { params: { id: sandboxId, commandId }, body: { signal: "SIGKILL" } }),
  );
  return command;
}
