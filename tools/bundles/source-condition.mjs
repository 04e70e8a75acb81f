/**
 * A loader hook: the same as `--conditions=source`, which cannot be given to a process that already runs.
 *
 * @type {import("node:module").ResolveHook}
 */
export function resolve(specifier, context, nextResolve) {
  return nextResolve(specifier, { ...context, conditions: ["source", ...context.conditions] });
}
