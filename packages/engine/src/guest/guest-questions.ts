import { toGuest, type ToGuestType } from "./frames.ts";
import type { ProcessCounts, DeletedFileUser, GuestMessage } from "./messages.ts";
import { encodeCount } from "./requests.ts";
import { wrongAnswer } from "./violation.ts";
import { PayloadWriter } from "./wire.ts";

/** The requests that a guest answers with one message. */
export abstract class GuestQuestions {
  protected abstract request(type: ToGuestType, payload: Buffer, signal: AbortSignal): Promise<GuestMessage>;

  async countProcesses(signal: AbortSignal, without: readonly number[] = []): Promise<ProcessCounts> {
    const message = await this.request(toGuest.COUNT, encodeCount(without), signal);
    return message.type === "counted" ? message : wrongAnswer(message);
  }

  /** Caps the size of every file that a process inside may write; `undefined` lifts the cap. */
  async capFileSize(bytes: number | undefined, signal: AbortSignal): Promise<void> {
    await this.request(toGuest.CAP, new PayloadWriter().u64(bytes ?? 0xffff_ffff_ffff_ffffn).finish(), signal);
  }

  /** Starts the proxy inside, on 127.0.0.1. */
  async startProxy(port: number, signal: AbortSignal): Promise<void> {
    await this.request(toGuest.PROXY, new PayloadWriter().u16(port).finish(), signal);
  }

  /** Returns the processes inside that use the file deleted at `path`; with `END_HOLDERS` the guest also kills them. */
  async findDeletedFileUsers(path: Uint8Array, signal: AbortSignal, end?: "END_HOLDERS"): Promise<DeletedFileUser[]> {
    const message = await this.request(toGuest[end ?? "HOLDERS"], new PayloadWriter().str(path).finish(), signal);
    return message.type === "heldBy" ? message.holders : wrongAnswer(message);
  }

  /**
   * Sends a request of `encodeNodes`. Rejects with `E2BIG` if it would take long, and with `ENOSYS` if the guest is
   * older than this request.
   */
  async findNodes(question: Buffer, signal: AbortSignal): Promise<Buffer[]> {
    const message = await this.request(toGuest.NODES, question, signal);
    return message.type === "nodes" ? message.entries : wrongAnswer(message);
  }
}
