/**
 * Resolves imports as `--conditions=source` does. It is a loader hook, because a process that already runs cannot be
 * given that option.
 *
 * @type {import("node:module").ResolveHook}
 */
export function resolve(specifier, context, nextResolve) {
  return nextResolve(specifier, { ...context, conditions: ["source", ...context.conditions] });
}
