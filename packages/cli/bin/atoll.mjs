#!/usr/bin/env node
import { enter } from "../../../tools/bundles/enter.mjs";

const { main } = await enter("cli");
await main(process.argv.slice(2));
