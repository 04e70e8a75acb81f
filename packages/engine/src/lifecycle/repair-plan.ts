import type { SandboxRecord } from "@atoll/protocol";

/** What a starting server does about a sandbox that it finds. */
export type RepairPlan =
  | { do: "adopt"; because: string }
  | { do: "settle pause"; because: string }
  | { do: "discard"; because: string }
  | { do: "finish kill"; because: string }
  | { do: "keep"; because: string }
  | { do: "back to paused"; because: string }
  | { do: "back to failed"; because: string };

/** Every state has a case: a new state does not compile without one. */
export function repairPlan(record: SandboxRecord): RepairPlan {
  switch (record.state) {
    case "creating":
      return { do: "discard", because: "the server stopped while it was being created, and no client has its id" };
    case "running":
      return { do: "adopt", because: "it runs" };
    case "pausing":
      return { do: "settle pause", because: "the server stopped while it was being paused" };
    case "resuming":
      if ("failure" in record)
        return { do: "back to failed", because: "the server stopped while it was being restarted" };
      return { do: "back to paused", because: "the server stopped while it was being resumed" };
    case "killing":
      return { do: "finish kill", because: "the server stopped while it was being killed" };
    case "killed":
      return { do: "discard", because: "it has ended" };
    case "released":
      return { do: "discard", because: "it lives on another machine" };
    case "paused":
      return { do: "keep", because: "it is paused" };
    case "failed":
      return { do: "keep", because: "it has failed, and its files are kept until it is killed" };
  }
}
