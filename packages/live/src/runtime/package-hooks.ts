/**
 * Hooks of the module loader for packages of an app, as the source of a module, since Node runs them in a thread of
 * their own. They refuse the modules of Node that the rules of the app refuse.
 */
export const packageHooks = `
import { isBuiltin } from "node:module";
let rules;
export const initialize = (data) => { rules = data; };
export async function resolve(specifier, context, next) {
  const name = specifier.replace(/^node:/, "");
  const why = isBuiltin(specifier)
    ? (rules.modules[name] ?? (rules.known.includes(name) ? undefined : rules.others))
    : rules.packages.includes(specifier) ? specifier + " is a restricted module" : undefined;
  if (why != null) {
    const error = new Error("Cannot import " + specifier + ": " + why +
      ". Leave it out, or run the app under a profile that allows it (\\\`profile\\\` in live.json).");
    throw Object.assign(error, { name: "AccessDenied", code: "permission_denied" });
  }
  return next(specifier, context);
}
`;
