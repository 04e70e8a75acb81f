#!/usr/bin/env node
import { enter } from "../../../tools/bundles/enter.mjs";

process.setSourceMapsEnabled(true);
await enter("server");
