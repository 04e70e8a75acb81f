import { core } from "./core.ts";
import { install } from "./install.ts";
import { libraries } from "./libraries.ts";
import { removedModules } from "./removed-modules.ts";
import { standardLibrary } from "./standard-library.ts";
import { testing } from "./testing.ts";

/**
 * The run-time shim: one Python module that gives names back which newer versions of Python and of libraries have
 * removed. A `.pth` file of the environment imports it, so a `sitecustomize` of the repository still works. Nothing is
 * changed that still exists, and every name that a program really asks for is appended to a trace.
 */
export const shimSource = [core, standardLibrary, testing, libraries, removedModules, install].join("\n");
