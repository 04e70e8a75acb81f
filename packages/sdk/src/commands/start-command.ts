import type { CommandInfo, RunCommandInput, SandboxId } from "@atoll/protocol";
import type { Http } from "../http/http.ts";
import { madeOrUndone } from "../http/made-or-undone.ts";

/** Starts a command that goes on by itself. One whose caller aborts before its id is here is killed. */
export async function startCommand(
  http: Http,
  sandboxId: SandboxId,
  body: RunCommandInput,
  signal: AbortSignal | undefined,
): Promise<CommandInfo> {
  const { command } = await madeOrUndone(
    () => http.call("runCommand", { params: { id: sandboxId }, body: { ...body, background: true } }),
    ({ command: { id: commandId } }) =>
      http.call("signalCommand", { params: { id: sandboxId, commandId }, body: { signal: "SIGKILL" } }),
    signal,
  );
  return command;
}
