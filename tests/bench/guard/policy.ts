import {
  ceilingsWith,
  decide,
  policyCeiling,
  ProfileBook,
  type Ceiling,
  type Decision,
  type GuardRequest,
} from "@atoll/guard";
import { AccessPolicy, builtInProfiles, type SecurityProfile } from "@atoll/protocol";
import type { Trial } from "../benchmark.ts";
import { percentile } from "../statistics.ts";

const decisionsPerRound = 20_000;

/** Requests of every kind, under every profile; half of them are refused by the last rule that is looked at. */
function requestsFor(profile: SecurityProfile, ceilings: readonly Ceiling[]): GuardRequest[] {
  const all = ceilingsWith(profile, ceilings);
  const weakest = [{ profile: new ProfileBook().get("low"), ceiling: policyCeiling("key", { limits: {} }) }];
  const create = { operation: "create", profile, weakest, driver: "gvisor", ceilings: all } as const;
  return [
    { ...create, limits: { memoryBytes: 64 * 1024 ** 2, cpus: 0.5, processes: 32, diskBytes: 1024 ** 2 } },
    { ...create, limits: { memoryBytes: 64 * 1024 ** 2, fileBytes: 1024 ** 5 } },
    { operation: "egress", profile, ceilings: all, egress: { allow: ["h499.example.com:443"], deny: [] } },
    { operation: "egress", profile, ceilings: all, egress: { allow: ["other.test"], deny: [] } },
    { operation: "port", profile, port: 8000 },
    { operation: "code_load", profile, module: "src/app.ts", severity: "high" },
    { operation: "import", profile, module: "node:child_process", needs: "start_process" },
  ];
}

/** A decision with a key whose egress ceiling has 500 rules. */
export const policy: Trial = {
  name: "guard.policy",
  title: "the 99th percentile of the time of one decision of the security controller",
  unit: "ms",
  better: "lower",
  bar: { of: "ours", is: "at most", value: 0.05 },
  rounds: { full: 50, quick: 5 },
  async attempt(bench, rounds) {
    const names = Array.from({ length: 500 }, (_, at) => `h${at}.example.com`);
    const key = AccessPolicy.parse({ drivers: ["gvisor"], egress: { allow: names }, limits: { cpus: 1 } });
    const server = AccessPolicy.parse({ egress: { allow: ["*"] }, limits: { memoryBytes: 1024 ** 3 } });
    const ceilings = [policyCeiling("key", key), policyCeiling("server", server)];
    const requests = builtInProfiles.flatMap((profile) => requestsFor(profile, ceilings));
    const decisions = requests.map((request) => decide(request));
    const isAllowed = ({ allowed }: Decision): boolean => allowed;
    const ours: number[] = [];
    const highest: number[] = [];
    for (let round = 0; round <= rounds; round += 1) {
      bench.signal.throwIfAborted();
      bench.progress.report(`round ${round} of ${rounds}`);
      const times: number[] = [];
      for (let at = 0; at < decisionsPerRound; at += 1) {
        const request = requests[at % requests.length];
        if (request === undefined) break;
        // A policy of a request is new each time, so nothing of it is known from before.
        const fresh =
          request.operation === "egress" ? { ...request, egress: structuredClone(request.egress) } : request;
        const startedAt = performance.now();
        decide(fresh);
        times.push(performance.now() - startedAt);
      }
      // The first round compiles the code.
      if (round === 0) continue;
      ours.push(percentile(times, 0.99));
      highest.push(Math.max(...times));
    }
    const allowedCount = decisions.filter(isAllowed).length;
    return {
      ours,
      checks: [
        {
          text: `${allowedCount} of ${requests.length} kinds of requests are allowed`,
          isMet: allowedCount > 0 && allowedCount < requests.length,
        },
      ],
      notes: [`the slowest decision of a round: p50 ${percentile(highest, 0.5).toFixed(3)} ms`],
    };
  },
};
