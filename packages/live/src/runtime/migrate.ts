import type { FieldSchema, StateSchema } from "../app/service.ts";
import { guarded } from "./guard.ts";
import { RuntimeFailure } from "./runtime-failure.ts";
import { messageOf, type AnyService } from "./service-process.ts";

/** A function of the app for services without `codeChange`: `(state, oldVersion, newVersion, service) => newState`. */
export type Migration = (state: object, oldVersion: number | string, newVersion: number | string) => unknown;

export interface MigrateOptions {
  extra: unknown;
  migration?: Migration | undefined;
  timeoutMs: number;
}

const restoreTimeoutMs = 5_000;

/**
 * Makes the state of a service fit its current code: by `codeChange`, else by the migration of the app, else by its
 * schema. It works on a copy, so that the state of the old version stays as it is. Throws `migration_failed` or
 * `invalid_state`.
 */
export function migratedState(
  definition: AnyService,
  old: { state: object; version: number | string },
  options: MigrateOptions | undefined,
): unknown {
  const { extra, migration, timeoutMs } = options ?? {
    extra: undefined,
    migration: undefined,
    timeoutMs: restoreTimeoutMs,
  };
  const newVersion = definition.version ?? 1;
  let state: unknown = structuredClone(old.state);
  if (newVersion !== old.version) {
    try {
      if (definition.codeChange !== undefined)
        state = guarded(() => codeChanged(definition, old.version, state, extra), timeoutMs);
      else if (migration !== undefined)
        state = guarded(() => migration(state as object, old.version, newVersion), timeoutMs);
      else if (definition.schema !== undefined) state = bySchema(definition.schema, state as Record<string, unknown>);
    } catch (error) {
      throw new RuntimeFailure(
        "migration_failed",
        `from version ${old.version} to ${newVersion}: ${messageOf(error)}`,
        {
          cause: error,
        },
      );
    }
  }
  if (typeof state !== "object" || state === null || state instanceof Promise) {
    throw new RuntimeFailure("invalid_state", "a migration returns the new state, an object, and not a promise of it");
  }
  assertCloneable(state);
  if (definition.schema !== undefined) validate(definition.schema, state as Record<string, unknown>);
  return state;
}

function codeChanged(definition: AnyService, oldVersion: number | string, state: unknown, extra: unknown): unknown {
  return definition.codeChange?.(oldVersion, state as never, extra);
}

function assertCloneable(state: object): void {
  try {
    structuredClone(state);
  } catch (error) {
    throw new RuntimeFailure("invalid_state", `the new state cannot be copied: ${messageOf(error)}`);
  }
}

function bySchema(schema: StateSchema, state: Record<string, unknown>): Record<string, unknown> {
  const next: Record<string, unknown> = schema.keepUnknown === true ? { ...state } : {};
  for (const [name, field] of Object.entries(schema.fields)) {
    const transform = field.transform as ((value: unknown, state: unknown) => unknown) | undefined;
    if (transform !== undefined) next[name] = transform(state[name], state);
    else if (Object.hasOwn(state, name)) next[name] = state[name];
    else if (Object.hasOwn(field, "default")) next[name] = structuredClone(field.default);
  }
  return next;
}

function validate(schema: StateSchema, state: Record<string, unknown>): void {
  for (const [name, field] of Object.entries(schema.fields)) {
    const problem = problemOf(field, state[name], Object.hasOwn(state, name));
    if (problem !== undefined) throw new RuntimeFailure("invalid_state", `field ${name} ${problem}`);
  }
}

function problemOf(field: FieldSchema, value: unknown, isThere: boolean): string | undefined {
  if (!isThere) return field.optional === true ? undefined : "is missing, and its schema has no default";
  if (!hasType(field.type, value)) return `is not of type ${field.type}`;
  const check = field.validate as ((value: unknown) => boolean) | undefined;
  return check === undefined || check(value) ? undefined : "is refused by its validation";
}

function hasType(type: FieldSchema["type"], value: unknown): boolean {
  switch (type) {
    case "any":
      return true;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "map":
      return value instanceof Map;
    case "set":
      return value instanceof Set;
    case "date":
      return value instanceof Date;
    case "bytes":
      return ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
    case "string":
    case "number":
    case "boolean":
    case "bigint":
      return typeof value === type;
  }
}
