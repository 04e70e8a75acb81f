import { SandboxError, type EgressPolicy } from "@atoll/protocol";
import { specialAddress, type Address } from "./address.ts";
import { parseHost, type Host } from "./host.ts";
import { contains, grants, MalformedRule, matches, allowsSpecial, parseRule, type Rule } from "./rule.ts";

interface Decision {
  allowed: boolean;
  /** The rule that decided, or what is missing, as text for people. */
  because: string;
}

/**
 * A policy in the form in which decisions are made. It resolves no names: the caller resolves an allowed name and asks
 * again with each address.
 */
export interface CompiledPolicy {
  /** Decides about a host as a program inside names it: a name, or an address in any notation. */
  decide(host: string, port: number): Decision;
  /** Decides about an address that an allowed name resolved to. */
  decideResolved(address: Address, port: number): Decision;
}

/** Throws `invalid_argument` for malformed rules, naming each with its position. */
export function compilePolicy(policy: EgressPolicy): CompiledPolicy {
  return new RuleBook(parseRules(policy));
}

/**
 * Combines several policies into one that allows what each of them allows. A refusal names the policy that it comes
 * from.
 */
export function allOf(policies: readonly { name?: string; policy: CompiledPolicy }[]): CompiledPolicy {
  const askAll = (decide: (policy: CompiledPolicy) => Decision): Decision => {
    let first: Decision | undefined;
    for (const { name, policy } of policies) {
      const decision = decide(policy);
      if (!decision.allowed)
        return name === undefined ? decision : { ...decision, because: `${name}: ${decision.because}` };
      first ??= decision;
    }
    return first ?? notAllowed;
  };
  return {
    decide: (host, port) => askAll((policy) => policy.decide(host, port)),
    decideResolved: (address, port) => askAll((policy) => policy.decideResolved(address, port)),
  };
}

/**
 * Returns the first rule that the policy allows and the ceiling does not; a rule has to lie within one rule of the
 * ceiling. Exceptions by `deny` inside a rule are checked at the connection.
 */
export function ruleBeyond(policy: EgressPolicy, ceiling: EgressPolicy): string | undefined {
  const { allow, deny } = parseRules(ceiling);
  const isWithin = (rule: Rule): boolean =>
    allow.some((outer) => grants(outer, rule)) && !deny.some((outer) => contains(outer, rule));
  return parseRules(policy).allow.find((rule) => !isWithin(rule))?.text;
}

interface Rules {
  allow: Rule[];
  deny: Rule[];
}

/** Parsed policies. A changed policy is another object, so that an entry never becomes wrong. */
const parsed = new WeakMap<EgressPolicy, Rules>();

function parseRules(policy: EgressPolicy): Rules {
  const rules = parsed.get(policy) ?? parseAllRules(policy);
  parsed.set(policy, rules);
  return rules;
}

function parseAllRules(policy: EgressPolicy): Rules {
  const issues: { path: [string, number]; message: string }[] = [];
  const parse = (list: "allow" | "deny"): Rule[] =>
    policy[list].flatMap((text, index) => {
      try {
        return [parseRule(text)];
      } catch (error) {
        if (!(error instanceof MalformedRule)) throw error;
        issues.push({ path: [list, index], message: `${JSON.stringify(text)}: ${error.message}` });
        return [];
      }
    });
  const rules = { allow: parse("allow"), deny: parse("deny") };
  const [first] = issues;
  if (first === undefined) return rules;
  throw new SandboxError("invalid_argument", `Cannot use the rule ${first.path.join("[")}] ${first.message}`, {
    suggestion: "A rule is a name, *.name, an address, a CIDR or *, optionally with :port or :from-to.",
    details: { issues },
  });
}

class RuleBook implements CompiledPolicy {
  #allow: Rule[];
  #deny: Rule[];

  constructor(rules: Rules) {
    this.#allow = rules.allow;
    this.#deny = rules.deny;
  }

  decide(text: string, port: number): Decision {
    const host = parseHost(text);
    if (host === undefined) return { allowed: false, because: "it is neither a name nor an address" };
    const denied = this.#denied(host, port);
    if (denied !== undefined) return denied;
    if (host.kind === "address") return this.#decideAddress(host.address, port);
    const rule = this.#allow.find((candidate) => matches(candidate, host, port));
    return rule === undefined ? notAllowed : { allowed: true, because: `the rule ${rule.text} allows it` };
  }

  decideResolved(address: Address, port: number): Decision {
    const host: Host = { kind: "address", address };
    const special = specialAddress(address);
    const denied = this.#denied(host, port);
    if (denied !== undefined) return denied;
    if (special !== undefined) return this.#decideSpecial(host, port, special);
    return { allowed: true, because: `${address.toString()} is on the internet` };
  }

  #decideAddress(address: Address, port: number): Decision {
    const host: Host = { kind: "address", address };
    const special = specialAddress(address);
    if (special !== undefined) return this.#decideSpecial(host, port, special);
    const rule = this.#allow.find((candidate) => matches(candidate, host, port));
    return rule === undefined ? notAllowed : { allowed: true, because: `the rule ${rule.text} allows it` };
  }

  #decideSpecial(host: Host & { kind: "address" }, port: number, special: string): Decision {
    const rule = this.#allow.find(
      (candidate) => allowsSpecial(candidate, host.address) && matches(candidate, host, port),
    );
    if (rule !== undefined) return { allowed: true, because: `the rule ${rule.text} allows it` };
    return { allowed: false, because: `${host.address.toString()} is ${special}, and no rule names it` };
  }

  #denied(host: Host, port: number): Decision | undefined {
    const rule = this.#deny.find((candidate) => matches(candidate, host, port));
    return rule === undefined ? undefined : { allowed: false, because: `the rule ${rule.text} denies it` };
  }
}

const notAllowed: Decision = { allowed: false, because: "no rule allows it" };
