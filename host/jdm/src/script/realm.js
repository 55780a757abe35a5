export default (prepare,clock,date,libraries)=>{
// A realm of the host's own: made ahead, for one evaluation. Most have no libraries; whoever looks for one ends the run, and the
// host runs it again in one that has them.
const G=globalThis,define=Object.defineProperty,parse=JSON.parse;
let wanted,now,later;
// Made ahead too, and as hidden as any other until someone looks for it.
const D=date(Date,()=>now),begin=clock(()=>D);
const stop=()=>{wanted=1;throw 0};
if(!libraries)for(const name of["dayjs","Big"])define(G,name,{configurable:true,enumerable:true,get:stop,set(value){define(G,name,{value,writable:true,configurable:true,enumerable:true})}});
G.log=[];
const lazy=[()=>wanted,libraries?()=>({moment:G.dayjs,dayjs:G.dayjs,Big:G.Big,env:{}}):()=>({get moment(){return stop()},get dayjs(){return stop()},get Big(){return stop()},env:{}})];
// Source alone: runs it, and answers whether input and clock may follow. Input alone: goes on from there. Both: one after the
// other, with the clock there from the beginning. Zero for an input: answers what the source defines.
return(source,input,time,a,b,c,d)=>{
let given=0;
const check=input===0;
if(check)time=a=b=c=d=0;
if(time!==void 0){now=time;given=begin(time,a,b,c,d)}
if(source!==void 0)later=prepare(source,Infinity,given,check,lazy);
else if(given)later(given);
if(check){const found=G.main();if(wanted)throw"weir:libraries";return found}
return input===void 0?!wanted&&!later(0):G.main(parse(input))}}
