import type { Instance, Prediction, Verdict } from "@atoll/runner";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { collect } from "../input/pair.ts";
import { UsageError } from "../input/usage-error.ts";
import { explain } from "../runner/explain.ts";
import { clientOf, readInput, withOptions } from "../runner/read-input.ts";
import { runItems } from "../runner/run-items.ts";
import { addRunnerOptions, type RunnerOptions } from "../runner/runner-options.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface SweOptions extends RunnerOptions {
  dataset: string;
  instance?: string[];
  predictions?: string;
  expect?: Verdict;
}

export function sweCommand(cli: Cli): Command {
  const swe = addHelpCommand(verb(cli, "swe", "Grade predictions of SWE-bench and data sets of the same form"));
  return swe.addCommand(run(cli)).addCommand(smoke(cli)).addCommand(validateGold(cli)).addCommand(explainOne(cli));
}

/** The runner is loaded only when something is run. */
const verdicts: readonly Verdict[] = [
  "resolved",
  "partial",
  "unresolved",
  "empty_patch",
  "apply_failed",
  "env_invalid",
  "infra_error",
  "timeout",
  "flaky",
  "tampered",
];

const dataSetOption = ["--dataset <path>", "a JSONL or JSON file, or a folder of tasks"] as const;
const instanceOption = ["--instance <id>", "only this one; may be repeated", collect] as const;

function run(cli: Cli): Command {
  const command = verb(cli, "run", "Run the tests of instances with predictions, and grade them", {
    examples: [
      "atoll swe run --dataset lite.jsonl --predictions preds.jsonl --repos ~/clones -j 4",
      "atoll swe run --dataset lite.jsonl --predictions gold --instance sympy__sympy-20590 --repeat 3",
    ],
  });
  return addRunnerOptions(command)
    .requiredOption(...dataSetOption)
    .requiredOption("--predictions <file>", "JSONL or JSON, or gold for the reference patches")
    .option(...instanceOption)
    .addOption(
      new Option("--expect <verdict>", "end with 1 unless all have this verdict (with gold: resolved)").choices(
        verdicts,
      ),
    )
    .action(async (options: SweOptions) => {
      const { predictions: from = "gold" } = options;
      await grade(cli, options, { from, expected: options.expect ?? (from === "gold" ? "resolved" : undefined) });
    });
}

function smoke(cli: Cli): Command {
  const command = verb(cli, "smoke", "Run one instance with its reference patch, which has to resolve it", {
    examples: ["atoll swe smoke sympy__sympy-20590 --dataset lite.jsonl --repos ~/clones"],
  });
  return addRunnerOptions(command)
    .argument("<instance>", "its id")
    .requiredOption(...dataSetOption)
    .action(async (id: string, options: SweOptions) => {
      await grade(cli, { ...options, instance: [id] }, { from: "gold", expected: "resolved" });
    });
}

function validateGold(cli: Cli): Command {
  const command = verb(
    cli,
    "validate-gold",
    "Run all instances with their reference patches, which have to resolve them",
    {
      examples: ["atoll swe validate-gold --dataset lite.jsonl --repos ~/clones -j 4"],
    },
  );
  return addRunnerOptions(command)
    .requiredOption(...dataSetOption)
    .option(...instanceOption)
    .action(async (options: SweOptions) => {
      await grade(cli, options, { from: "gold", expected: "resolved" });
    });
}

function explainOne(cli: Cli): Command {
  const command = verb(cli, "explain", "Show what a run of an instance would do, and why", {
    examples: ["atoll swe explain sympy__sympy-20590 --dataset lite.jsonl --repos ~/clones"],
  });
  return addRunnerOptions(command)
    .argument("<instance>", "its id")
    .requiredOption(...dataSetOption)
    .action(async (id: string, options: SweOptions) => {
      const { chooseInstances, readDataSet } = await import("@atoll/runner");
      const [instance] = await readInput(async () => chooseInstances(await readDataSet(options.dataset), [id]));
      if (instance !== undefined) await explain(cli, withOptions(instance, options), options);
    });
}

async function grade(
  cli: Cli,
  options: SweOptions,
  { from, expected }: { from: string; expected: Verdict | undefined },
): Promise<void> {
  const { chooseInstances, goldPredictions, readDataSet, readPredictions } = await import("@atoll/runner");
  const all = await readInput(() => readDataSet(options.dataset));
  const chosen = await readInput(async () =>
    options.instance === undefined ? all : chooseInstances(all, options.instance),
  );
  const instances = chosen.map((instance) => withOptions(instance, options));
  const predictions = from === "gold" ? goldPredictions(instances) : await readInput(() => readPredictions(from));
  const isChosen = options.instance !== undefined;
  const items = pair(instances, predictions, { of: from, known: new Set(all.map(({ id }) => id)), isChosen });
  const without = instances.length - new Set(items.map(({ instance }) => instance.id)).size;
  if (without > 0) cli.note(`${without} of ${instances.length} instances have no prediction, and are not run.`);
  await runItems(cli, { items, options, client: clientOf(instances, options), expected });
}

/** Returns the predictions with their instances. One for an unknown instance would silently shorten the run. */
function pair(
  instances: readonly Instance[],
  predictions: readonly Prediction[],
  { of, known, isChosen }: { of: string; known: ReadonlySet<string>; isChosen: boolean },
): { instance: Instance; prediction: Prediction }[] {
  const stray = predictions.find(({ instanceId }) => !known.has(instanceId));
  if (stray !== undefined) {
    throw new UsageError(
      `Cannot run ${of}: the data set has no instance ${stray.instanceId}`,
      "Use the data set of it.",
    );
  }
  const byId = new Map(instances.map((instance) => [instance.id, instance]));
  const items = predictions.flatMap((prediction) => {
    const instance = byId.get(prediction.instanceId);
    return instance === undefined ? [] : [{ instance, prediction }];
  });
  if (items.length > 0) return items;
  throw new UsageError(
    `Cannot run ${of}: ${isChosen ? "the chosen instances have" : "the data set has"} no prediction in it`,
    "See the ids in both files.",
  );
}
