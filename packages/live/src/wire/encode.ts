/**
 * Values as JSON with tags for what JSON does not have. It carries what `structuredClone` copies, except for cycles and
 * shared references, which become copies. Class instances, functions and symbols are refused with the path to them.
 */
const maxDepth = 500;

export class UncloneableValue extends Error {
  override readonly name = "UncloneableValue";
}

const typedArrays = {
  Uint8Array,
  Int8Array,
  Uint8ClampedArray,
  Uint16Array,
  Int16Array,
  Uint32Array,
  Int32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
} as const;
type TypedArrayName = keyof typeof typedArrays;

const isTypedArrayName = (name: string): name is TypedArrayName => Object.hasOwn(typedArrays, name);

/** The key that marks a tagged value. An object of the user with this key is wrapped. */
const tag = "$";

export function encode(value: unknown): string {
  return JSON.stringify(toJson(value, "value", 0, new Set()));
}

/** Throws `UncloneableValue` when the text is not what `encode` writes. */
export function decode(text: string): unknown {
  return fromJson(JSON.parse(text), 0);
}

function toJson(value: unknown, path: string, depth: number, above: Set<object>): unknown {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0) ? value : { [tag]: "number", v: numberText(value) };
    case "bigint":
      return { [tag]: "bigint", v: value.toString() };
    case "undefined":
      return { [tag]: "undefined" };
    case "function":
    case "symbol":
      throw new UncloneableValue(`${path} is a ${typeof value}, which cannot be copied`);
    case "object":
      break;
  }
  if (value === null) return null;
  if (depth > maxDepth) throw new UncloneableValue(`${path} is nested more than ${maxDepth} deep`);
  if (above.has(value)) throw new UncloneableValue(`${path} refers to an object that contains it`);
  above.add(value);
  try {
    return objectToJson(value, path, (inner, step) => toJson(inner, path + step, depth + 1, above));
  } finally {
    above.delete(value);
  }
}

function objectToJson(value: object, path: string, inner: (value: unknown, step: string) => unknown): unknown {
  if (Array.isArray(value)) return value.map((item, at) => inner(item, `[${at}]`));
  if (value instanceof Date) return { [tag]: "date", v: numberText(value.getTime()) };
  if (value instanceof RegExp) return { [tag]: "regexp", v: value.source, flags: value.flags };
  if (value instanceof Map) {
    return {
      [tag]: "map",
      v: [...value].map(([key, item], at) => [inner(key, `.key(${at})`), inner(item, `.get(${at})`)]),
    };
  }
  if (value instanceof Set) return { [tag]: "set", v: [...value].map((item, at) => inner(item, `.item(${at})`)) };
  if (value instanceof Error) return { [tag]: "error", v: { name: value.name, message: value.message } };
  if (value instanceof ArrayBuffer)
    return { [tag]: "bytes", v: Buffer.from(value).toString("base64"), of: "ArrayBuffer" };
  if (ArrayBuffer.isView(value) && isTypedArrayName(typeName(value))) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return { [tag]: "bytes", v: bytes.toString("base64"), of: typeName(value) };
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    throw new UncloneableValue(`${path} is a ${typeName(value)}, and only plain objects can be copied`);
  }
  const entries = Object.entries(value).map(([key, item]) => [key, inner(item, `.${key}`)] as const);
  const object = Object.fromEntries(entries);
  return Object.hasOwn(value, tag) ? { [tag]: "object", v: object } : object;
}

const typeName = (value: object): string => {
  // A Buffer is a Uint8Array of Node, and arrives as one.
  if (Buffer.isBuffer(value)) return "Uint8Array";
  return (value.constructor as { name?: string } | undefined)?.name ?? "object";
};

const numberText = (value: number): string => (Object.is(value, -0) ? "-0" : String(value));

function fromJson(value: unknown, depth: number): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (depth > maxDepth) throw new UncloneableValue(`a value is nested more than ${maxDepth} deep`);
  if (Array.isArray(value)) return value.map((item) => fromJson(item, depth + 1));
  const record = value as Record<string, unknown>;
  if (!Object.hasOwn(record, tag)) return plainObject(record, depth);
  return tagged(record, depth);
}

function plainObject(record: Record<string, unknown>, depth: number): Record<string, unknown> {
  const object: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(record)) {
    // Assignment to `__proto__` would change the prototype.
    Object.defineProperty(object, key, {
      value: fromJson(item, depth + 1),
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
  return object;
}

function tagged(record: Record<string, unknown>, depth: number): unknown {
  const v = record["v"];
  const items = (): unknown[] => {
    if (!Array.isArray(v)) throw new UncloneableValue(`a ${String(record[tag])} has no items`);
    return v;
  };
  switch (record[tag]) {
    case "undefined":
      return undefined;
    case "number":
      return Number(v);
    case "bigint":
      return BigInt(String(v));
    case "date":
      return new Date(Number(v));
    case "regexp":
      return new RegExp(String(v), String(record["flags"]));
    case "set":
      return new Set(items().map((item) => fromJson(item, depth + 1)));
    case "map":
      return new Map(items().map((pair) => pairOf(pair, depth)));
    case "error": {
      const { name, message } = (v ?? {}) as { name?: unknown; message?: unknown };
      return Object.assign(new Error(String(message)), { name: String(name) });
    }
    case "bytes":
      return bytesOf(String(v), String(record["of"]));
    case "object":
      if (typeof v === "object" && v !== null) return plainObject(v as Record<string, unknown>, depth);
      break;
    default:
  }
  throw new UncloneableValue(`a value has the unknown tag ${JSON.stringify(record[tag])}`);
}

function pairOf(pair: unknown, depth: number): [unknown, unknown] {
  if (!Array.isArray(pair) || pair.length !== 2) throw new UncloneableValue("an entry of a map is not a pair");
  return [fromJson(pair[0], depth + 1), fromJson(pair[1], depth + 1)];
}

function bytesOf(base64: string, name: string): unknown {
  const bytes = new Uint8Array(Buffer.from(base64, "base64"));
  if (name === "ArrayBuffer") return bytes.buffer;
  if (!isTypedArrayName(name)) throw new UncloneableValue(`bytes have the unknown type ${JSON.stringify(name)}`);
  const type = typedArrays[name];
  if (bytes.byteLength % type.BYTES_PER_ELEMENT !== 0) throw new UncloneableValue(`bytes do not fill a ${name}`);
  return new type(bytes.buffer);
}
