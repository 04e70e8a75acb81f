import { routes, type Route } from "@atoll/protocol";
import { Validator } from "@seriousme/openapi-schema-validator";
import { expect, test } from "vitest";
import { docsPage } from "../../src/http/docs-page.ts";
import { openApiDocument, openApiPath } from "../../src/http/openapi.ts";

const document = openApiDocument();

test("an independent validator finds no error in the document", async () => {
  const validator = new Validator();
  const result = await validator.validate(structuredClone(document));
  expect(result.errors ?? []).toEqual([]);
  expect(result.valid).toBe(true);
  expect(validator.version).toBe("3.1");
});

test("the document has every route of the contract, and no other", () => {
  const paths = document["paths"] as Record<string, Record<string, { operationId: string }>>;
  const operationIds = Object.values(paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  expect(operationIds.toSorted()).toEqual(Object.keys(routes).toSorted());
});

test.for(Object.entries(routes) as [string, Route][])("%s has its path, streams and errors", ([, route]) => {
  const paths = document["paths"] as Record<string, Record<string, Record<string, unknown>>>;
  const operation = paths[openApiPath(route.path)]?.[route.method.toLowerCase()];
  const names = ((operation?.["parameters"] ?? []) as { name: string }[]).map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining([...route.path.matchAll(/:(\w+)/g)].map((match) => match[1])));
  expect(Object.keys(operation?.["responses"] as object)).toContain("default");
  if (route.reply === "ndjson") expect(JSON.stringify(operation?.["responses"])).toContain("application/x-ndjson");
});

test("the page for people has every endpoint and loads nothing from elsewhere", () => {
  const page = docsPage();
  for (const name of Object.keys(routes)) expect(page).toContain(`id="${name}"`);
  expect(page).not.toMatch(/<script|<link|src=|https?:\/\//);
});
