import { standardProfile, type EgressPolicy, type ResolvedProfile } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { formatDuration } from "../output/amount.ts";
import { bytesFact, printFacts, type Fact } from "../output/facts.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { addHelpCommand, verb } from "./verb.ts";

export function profileCommand(cli: Cli): Command {
  const profile = addHelpCommand(verb(cli, "profile", "List and show what sandboxes may use and do"));
  return profile.addCommand(listProfiles(cli)).addCommand(showProfile(cli));
}

function listProfiles(cli: Cli): Command {
  return verb(cli, "ls", "List the security profiles, as they are for your key on the server's machine").action(
    async () => {
      const { profiles } = await cli.atoll();
      const all = await cli.during("Asking", profiles.list({ signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ profiles: all });
      else await cli.printTable(columns, all);
    },
  );
}

function showProfile(cli: Cli): Command {
  return verb(cli, "show", "Show what a security profile comes to before you use it, and what is missing for it", {
    examples: ["atoll profile show high", "atoll profile show high --json"],
  })
    .argument("<name>", 'its name; "atoll profile ls" lists them')
    .action(async (name: string) => {
      const { profiles } = await cli.atoll();
      const resolved = await cli.during("Asking", profiles.get(name, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson(resolved);
      else await printFacts(cli, factsOf(resolved));
      if (resolved.missing.length > 0) cli.exitCode = exitCodes.failure;
    });
}

const columns: Column<ResolvedProfile>[] = [
  { header: "NAME", cell: ({ profile }) => profile.name },
  { header: "ISOLATION", cell: ({ profile }) => profile.isolation },
  { header: "DRIVER", cell: ({ driver }) => driver ?? "none" },
  bytesColumn("MEMORY", ({ limits }) => limits.memoryBytes),
  { header: "PROCESSES", cell: ({ limits }) => String(limits.processes), align: "right" },
  { header: "RUN TIME", cell: runTime, align: "right" },
  { header: "OPERATIONS", cell: ({ profile }) => profile.allowedOperations.join(","), isDetail: true },
  { header: "MAY REACH", cell: ({ egress }) => egressText(egress), isDetail: true },
  { header: "AUDIT", cell: ({ profile }) => profile.audit, isDetail: true },
  { header: "DEFAULT", cell: ({ isDefault }) => (isDefault ? "yes" : "") },
  {
    header: "MISSING",
    cell: ({ missing }) => missing.map(({ what }) => what).join("; "),
    tone: ({ missing }) => (missing.length > 0 ? "bad" : undefined),
  },
];

function factsOf(resolved: ResolvedProfile): Fact[] {
  const { profile, limits, missing, driver, egress } = resolved;
  return [
    ["name", resolved.isDefault ? `${profile.name}, the default of your key` : profile.name],
    ["from", resolved.isBuiltIn ? "built in" : "the server's configuration"],
    ["isolation", profile.isolation],
    ["driver", driver ?? "none: see what is missing"],
    bytesFact("memory", limits.memoryBytes),
    ["counted", resolved.memoryCounts],
    ["cpus", String(limits.cpus)],
    ["processes", String(limits.processes)],
    bytesFact("disk", limits.diskBytes),
    bytesFact("/tmp", limits.tmpBytes),
    limits.fileBytes === undefined ? ["largest file", undefined] : bytesFact("largest file", limits.fileBytes),
    ["run time", runTime(resolved)],
    ["operations", profile.allowedOperations.join(", ")],
    ["restricted modules", profile.restrictedModules.join(", ") || "none"],
    ["may reach", egressText(egress)],
    ["audit", profile.audit],
    ["warns at", `${Math.round(profile.softLimit * 100)} % of a limit`],
    ["at a limit", atLimit(resolved)],
    ["missing", missing.length === 0 ? "nothing" : undefined],
    ...missing.map(({ what, fix }): Fact => ["missing", `${what}. ${fix}`]),
  ];
}

/** Under the standard profile the server adds nothing to what the kernel does. */
function atLimit({ profile }: ResolvedProfile): string {
  return profile.name === standardProfile ? "nothing more than the limit" : profile.onHardLimit.replace("_", " ");
}

function runTime({ profile }: ResolvedProfile): string {
  const { runTimeMs } = profile.limits;
  return runTimeMs === undefined ? "no limit" : formatDuration(runTimeMs);
}

function egressText({ allow, deny }: EgressPolicy): string {
  return [...allow, ...deny.map((rule) => `!${rule}`)].join(", ") || "nothing";
}
