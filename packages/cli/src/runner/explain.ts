import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Explanation, Instance } from "@atoll/runner";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { formatDuration } from "../output/amount.ts";
import { printFacts, type Fact } from "../output/facts.ts";
import { openClient } from "./open-client.ts";
import { clientOf } from "./read-input.ts";
import { runChoices, type RunnerOptions } from "./runner-options.ts";

/** Prints what a run of an instance would do. Nothing of it is run. */
export async function explain(cli: Cli, instance: Instance, options: RunnerOptions): Promise<void> {
  cli.failureExitCode = exitCodes.infrastructure;
  const { explainItems } = await import("@atoll/runner");
  const directory = await mkdtemp(join(tmpdir(), "atoll-explain-"));
  try {
    await using opened = await openClient(cli, clientOf([instance], options));
    const [explanation] = await cli.during(
      "Planning",
      explainItems({
        runId: "explain",
        directory,
        cacheDirectory: join(cli.environment.cacheDirectory, "runner"),
        client: opened.client,
        items: [{ instance, prediction: null }],
        signal: cli.signal,
        ...runChoices(options),
      }),
    );
    if (explanation === undefined) return;
    if (cli.isJson) await cli.printJson(explanation);
    else await print(cli, explanation);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function print(cli: Cli, explanation: Explanation): Promise<void> {
  const { repository, environment, test, expected } = explanation;
  const facts: Fact[] = [
    ["instance", explanation.id],
    ["repository", repository === null ? "none" : `${repository.from} at ${repository.ref}`],
    ["commit", repository?.commit],
    ["client", explanation.client],
    ["environment", [environment.language, environment.interpreter].filter((part) => part !== undefined).join(" ")],
    ["packages", environment.packages.join(" ") || undefined],
    ["network", explanation.network.join(" ") || "none"],
    ...environment.install.map((line): Fact => ["install", commandText([line].flat())]),
    ...explanation.setup.map((argv): Fact => ["setup", commandText(argv)]),
    ...explanation.build.map((argv): Fact => ["build", commandText(argv)]),
    ["test", commandText(test.argv)],
    ["directory", test.cwd],
    ...Object.entries(test.env).map(([name, value]): Fact => ["variable", `${name}=${value}`]),
    ["parser", test.parser],
    ["results", test.resultsFile ?? undefined],
    ["canary", explanation.canary ? "yes" : "no"],
    ["expected", `${expected.failToPass} to pass that fail before, ${expected.passToPass} to keep passing`],
    ["fixes", `${explanation.compat}, ${explanation.fixes.length} known`],
    ...explanation.fixes.map(({ id, what, why }): Fact => ["fix", `${id}: ${what}, because ${why}`]),
    ["baseline", explanation.isBaselineKnown ? "known to hold" : "not known"],
    ...explanation.snapshots.map(({ stage, name, isThere }): Fact => [
      "snapshot",
      `${stage} ${name} ${isThere ? "is there" : "will be made"}`,
    ]),
    ...explanation.stages.map(({ name, timeoutMs, tries }): Fact => [
      "stage",
      `${name}, at most ${formatDuration(timeoutMs)}${tries > 1 ? `, ${tries} tries` : ""}`,
    ]),
  ];
  await printFacts(cli, facts);
}

/** Returns an argument list as it would be typed. */
function commandText(argv: readonly string[]): string {
  return argv.map((word) => (/^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
