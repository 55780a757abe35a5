export default date=>{
// What answers for the clock and for random numbers: the batch's time and seed, which may be given when the source has run.
const Real=Date,imul=Math.imul,make=eval,text=JSON.stringify;
return(time,a,b,c,d)=>salt=>{
let D,mixed;
// sfc32, seeded by the host and mixed with the input, so that a node that runs for each element draws anew for each.
const next=()=>{const t=(a+b|0)+d|0;d=d+1|0;a=b^b>>>9;b=c+(c<<3)|0;c=c<<21|c>>>11;c=c+t|0;return t>>>0};
return[()=>D||(D=make(date)(Real,()=>time)),()=>{
if(!mixed){mixed=1;let s="";try{s=text(salt())||""}catch{}for(let i=0;i<s.length;i++)a=imul(a^s.charCodeAt(i),16777619);for(let i=0;i<15;i++)next()}
return(next()*2097152+(next()>>>11))/9007199254740992}]}}
