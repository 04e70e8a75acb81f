import type { AppliedFix } from "../models/report.ts";
import type { CompatFix, EnvFacts, FixPlan, Symptoms } from "./compat-fix.ts";

/** A fix with the changes that it makes here, and what caused it. */
export interface FixChoice {
  fix: CompatFix;
  plan: FixPlan;
  symptom: string;
}

export interface ChoiceRules {
  /** Fixes in force already: they, and what conflicts with them, are not chosen again. */
  applied: readonly string[];
  never: readonly string[];
  allowBehaviourChanges: boolean;
}

/** The cheapest and least invasive first. Fixes of one layer are tried together, before those of the next. */
const layers: readonly AppliedFix["layer"][] = ["env", "shim", "packages", "command", "interpreter", "source"];

/** The fixes that the symptoms call for, of the first layer that has any. Empty: nothing known helps. */
export function chooseFixes(
  catalogue: readonly CompatFix[],
  symptoms: Symptoms,
  facts: EnvFacts,
  rules: ChoiceRules,
): FixChoice[] {
  const possible = catalogue.map((fix) => named(fix, symptoms, facts)).filter((fix) => isPossible(fix, facts, rules));
  for (const layer of layers) {
    const chosen: FixChoice[] = [];
    for (const fix of possible) {
      if (fix.layer !== layer || chosen.some((choice) => areInConflict(choice.fix, fix))) continue;
      const symptom = fix.detect(symptoms, facts);
      if (symptom !== undefined) chosen.push({ fix, plan: fix.plan(symptoms, facts), symptom });
    }
    if (chosen.length > 0) return chosen;
  }
  return [];
}

const named = (fix: CompatFix, symptoms: Symptoms, facts: EnvFacts): CompatFix =>
  fix.variant === undefined ? fix : { ...fix, id: `${fix.id}:${fix.variant(symptoms, facts)}` };

/** Fixes that a configuration names, in the order of the catalogue. Names that it does not have are returned too. */
export function requestFixes(
  catalogue: readonly CompatFix[],
  ids: readonly string[],
  facts: EnvFacts,
): { chosen: FixChoice[]; unknown: string[] } {
  const families = (fix: CompatFix): string[] => ids.filter((id) => findFix([fix], id) !== undefined);
  const chosen = catalogue.flatMap((fix) =>
    families(fix).map((id) => {
      // What follows the colon stands for the symptom, as `yaml` does in `missing-module:yaml`.
      const text = id.slice(fix.id.length + 1);
      const plan = fix.plan({ text, missing: [], seen: [], failing: [] }, facts);
      return { fix: { ...fix, id }, plan, symptom: "requested" };
    }),
  );
  return { chosen, unknown: ids.filter((id) => !chosen.some(({ fix }) => fix.id === id)) };
}

/** Returns the fix with this id, which may have a variant: `missing-module:yaml` is one of `missing-module`. */
export const findFix = (catalogue: readonly CompatFix[], id: string): CompatFix | undefined =>
  catalogue.find((fix) => fix.id === id || (fix.variant !== undefined && id.startsWith(`${fix.id}:`)));

/** What the report says of a fix. */
export const describeFix = ({ fix, symptom }: FixChoice, used: string[] | null = null): AppliedFix => ({
  id: fix.id,
  layer: fix.layer,
  symptom,
  what: fix.what,
  why: fix.why,
  risk: fix.risk,
  used,
});

function isPossible(fix: CompatFix, facts: EnvFacts, { applied, never, allowBehaviourChanges }: ChoiceRules): boolean {
  if (!fix.languages.includes(facts.language) || never.includes(fix.id) || applied.includes(fix.id)) return false;
  if (fix.risk === "changes-behaviour" && !allowBehaviourChanges) return false;
  return !(fix.conflicts ?? []).some((id) => applied.includes(id));
}

const areInConflict = (a: CompatFix, b: CompatFix): boolean =>
  (a.conflicts ?? []).includes(b.id) || (b.conflicts ?? []).includes(a.id);
