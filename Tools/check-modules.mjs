// Parses JavaScript files as modules, and fails if one cannot be parsed. `node --check` reports no mistake in a module
// whose name ends in `.js` and which no package.json declares.
// usage: node --no-warnings --experimental-vm-modules check-modules.mjs FILE...
import { readFileSync } from 'node:fs'
import { SourceTextModule } from 'node:vm'

for (const file of process.argv.slice(2)) {
  try {
    new SourceTextModule(readFileSync(file, 'utf8'), { identifier: file })
  } catch (error) {
    console.error(`${file}: ${error}`)
    process.exitCode = 1
  }
}
