import {
  ApiEvent,
  AuditMessage,
  CommandLine,
  ErrorBody,
  errorCodes,
  httpHeaders,
  routes,
  serverProofHeader,
  WatchLine,
  type Route,
  type RouteName,
} from "@atoll/protocol";
import { z } from "zod";

type Json = Record<string, unknown>;

const byteTypes = { bytes: "application/octet-stream", tar: "application/x-tar" } as const;

/** The schema of the lines of each NDJSON stream. */
const lineSchemas: Partial<Record<RouteName, z.ZodType>> = {
  tailAudit: AuditMessage,
  runCommand: CommandLine,
  runOnce: CommandLine,
  readCommand: CommandLine,
  watchFiles: WatchLine,
};

/** Returns the contract as OpenAPI 3.1: every route, and nothing else. */
export function openApiDocument(): Json {
  const paths: Record<string, Json> = {};
  for (const [name, route] of Object.entries(routes) as [RouteName, Route][]) {
    const path = openApiPath(route.path);
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(name, route) };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Atoll",
      version: "0.1.0",
      summary: "Run code you do not trust on machines you own",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    paths,
    components: {
      schemas: {
        Error: errorSchema(),
        CommandLine: schemaOf(CommandLine, "output"),
        Event: schemaOf(ApiEvent, "output"),
      },
      responses: {
        Error: {
          description: "What went wrong: `error.code` is for programs, the message for people",
          content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
        },
      },
      securitySchemes: {
        key: { type: "http", scheme: "bearer", description: "An API key (`atk_…`) or a sandbox's own token (`sbt_…`)" },
        keyHeader: { type: "apiKey", in: "header", name: "x-api-key" },
        sandboxToken: { type: "apiKey", in: "header", name: httpHeaders.sandboxToken },
        serverProof: { type: "apiKey", in: "header", name: serverProofHeader, description: "From another server" },
      },
    },
    security: [{ key: [] }, { keyHeader: [] }],
    tags: tagNames.map((name) => ({ name })),
  };
}

export const tagNames = ["sandboxes", "commands", "files", "ports", "templates", "keys", "events", "server"] as const;

export function tagOf({ path }: Route): (typeof tagNames)[number] {
  const words = path.split("/").filter((word) => !word.startsWith(":"));
  if (path === "/run") return "commands";
  return tagNames.findLast((tag) => words.includes(tag)) ?? "server";
}

function operation(name: RouteName, route: Route): Json {
  const isForTokens = ["read", "commands", "files", "ports"].includes(route.verb) && route.path.includes(":id");
  const keys = [{ key: [] }, { keyHeader: [] }, ...(isForTokens ? [{ sandboxToken: [] }] : [])];
  const security = route.verb === "public" ? [] : route.verb === "server" ? [{ serverProof: [] }] : keys;
  const parameters = [...fieldsOf(route.params, "path"), ...fieldsOf(route.query, "query"), ...headersOf(name, route)];
  return {
    operationId: name,
    summary: route.summary,
    tags: [tagOf(route)],
    ...(route.verb === "public" || route.verb === "server" ? {} : { description: `Needs the verb \`${route.verb}\`.` }),
    security,
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(route.body === undefined ? {} : { requestBody: requestBody(route.body) }),
    responses: {
      [route.status ?? (route.reply === "empty" ? 204 : 200)]: response(name, route),
      ...errorResponses(route),
    },
  };
}

function headersOf(name: RouteName, route: Route): Json[] {
  const header = (title: string, description: string): Json => ({
    name: title,
    in: "header",
    required: false,
    description,
    schema: { type: "string", maxLength: 200 },
  });
  return [
    ...(route.isIdempotent === true
      ? [header("Idempotency-Key", "Requests with the same key and body have the same reply and happen once")]
      : []),
    ...(route.path.includes(":id")
      ? [header("X-Atoll-Holder", "The name under which the client holds the sandbox")]
      : []),
    ...(name === "followEvents" ? [header("Last-Event-ID", "Continues after this event")] : []),
  ];
}

function fieldsOf(schema: z.ZodObject | undefined, place: "path" | "query"): Json[] {
  if (schema === undefined) return [];
  const { properties = {}, required = [] } = schemaOf(schema, "input") as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, field]) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    schema: field,
  }));
}

function requestBody(body: z.ZodType | "bytes" | "tar"): Json {
  if (typeof body === "string") return { required: true, content: { [byteTypes[body]]: {} } };
  const schema = schemaOf(body, "input");
  // Where all fields have defaults, no body has to be sent.
  return { required: !body.safeParse({}).success, content: { "application/json": { schema } } };
}

function response(name: RouteName, { reply }: Route): Json {
  const lineSchema = lineSchemas[name];
  const lines = lineSchema === undefined ? {} : { "application/x-ndjson": { schema: schemaOf(lineSchema, "output") } };
  switch (reply) {
    case "empty":
      return { description: "Done" };
    case "text":
      return { description: "Text", content: { "text/plain": { schema: { type: "string" } } } };
    case "sse":
      return {
        description: "Server-sent events; `id` is the cursor, `data` the event",
        content: { "text/event-stream": { schema: { $ref: "#/components/schemas/Event" } } },
      };
    case "ndjson":
      return { description: "One JSON value per line", content: lines };
    case "bytes":
    case "tar":
      return { description: "The bytes", content: { [byteTypes[reply]]: {} } };
    default:
      return {
        description: "Done",
        content: { "application/json": { schema: schemaOf(reply, "output") }, ...lines },
      };
  }
}

function errorResponses({ verb, path }: Route): Json {
  const error = { $ref: "#/components/responses/Error" };
  const statuses = verb === "public" ? [] : [400, 403, 429, ...(path.includes(":") ? [404, 409, 410] : [])];
  return { ...Object.fromEntries(statuses.map((status) => [status, error])), default: error };
}

function errorSchema(): Json {
  const schema = schemaOf(ErrorBody, "output") as { properties: { error: { properties: Json } } };
  schema.properties.error.properties["code"] = { type: "string", enum: Object.keys(errorCodes) };
  return schema;
}

function schemaOf(schema: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io, unrepresentable: "any", reused: "inline" });
  return json;
}

export function openApiPath(path: string): string {
  return path.replaceAll(/:(\w+)/g, "{$1}");
}
