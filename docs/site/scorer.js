// Ranks the results of a search: pages that explain, then pages that record, then the library's modules.
const RECORDS = /^(CHANGELOG|CONTRIBUTING|README|cli|docs\/(ARCHITECTURE|benchmarks|promises))$/;
var Scorer = {  // Sphinx declares it again
  score: ([page, , , , score]) => score - (page.startsWith("api/") ? 100 : RECORDS.test(page) ? 20 : 0),
  // Sphinx's own figures, which this object replaces
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
